//! Runs one cell: collects the kernel's messages until the cell is done, reaches a limit, is interrupted, or the kernel
//! exits.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use belljar_core::kernel::{CellError, CellObserver, CellRequest, INPUT_TIMEOUT, InputError, InputReply};
use belljar_core::{CellResult, CellStatus, ExitReason, LimitKind, Output};
use serde_json::Value;

use crate::linux::cell_output::CellOutput;
use crate::linux::client::{Channel, Client};
use crate::linux::content::{ExecuteReply, InputRequest, IopubMessage};
use crate::linux::cpu_time::process_tree_cpu_time;
use crate::linux::function_calls::{CellCalls, FunctionSocket};
use crate::linux::install_broker::InstallBroker;
use crate::linux::interrupt::{InterruptFlag, InterruptRequest};
use crate::linux::kernel_process::KernelProcess;
use crate::linux::zmtp::ZmtpError;
use crate::linux::zmtp::message::ReceivedMessage;

/// The time after a `SIGINT` at which an `interrupt_request` is sent as well.
const INTERRUPT_MESSAGE_DELAY: Duration = Duration::from_secs(1);
/// The time that an interrupted cell has to clean up before its interpreter is killed.
const INTERRUPT_GRACE: Duration = Duration::from_secs(10);
/// The time for which an interrupt is held back until the kernel has reported the cell as running: before that,
/// ipykernel ignores `SIGINT`.
const INTERRUPT_HOLDOFF: Duration = Duration::from_millis(300);
/// The time by which the reply and the idle status of a cell may be apart.
const IDLE_REPLY_SKEW: Duration = Duration::from_secs(5);
/// The time that a process has to exit after it has closed a socket.
pub(crate) const EXIT_AFTER_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of input requests of one cell at most.
const MAX_INPUT_REQUESTS: usize = 1000;
/// The number of bytes of a cell's messages that are allowed in addition to its text.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;
/// The number of messages that are read from one channel before the other channels are served.
pub(crate) const MESSAGE_BATCH: usize = 200;
/// The prefix of an input reply that is the reason for a missing answer (`guest/belljar_kernel/kernel.py`).
const REFUSED_PREFIX: char = '\x15';

/// The limits of a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CellLimits {
    /// The elapsed time, without the time of installations and of calls of functions of the host, which have limits of
    /// their own.
    pub(crate) wall_time: Option<Duration>,
    /// The processor time of the kernel and its child processes.
    pub(crate) cpu_time: Option<Duration>,
    /// The time between the interrupt of a cell that has reached its time limit, and the end of its interpreter.
    pub(crate) grace: Duration,
    /// The number of bytes that the cell may write.
    pub(crate) output: u64,
    /// Set to run the cell without a number and without recording it.
    pub(crate) silent: bool,
}

/// The parts of a running kernel and its session that running a cell takes.
pub(crate) struct KernelHandles<'a> {
    pub(crate) client: &'a mut Client,
    pub(crate) process: &'a KernelProcess,
    pub(crate) interrupt: &'a InterruptFlag,
    pub(crate) functions: Option<&'a mut FunctionSocket>,
    pub(crate) broker: &'a mut InstallBroker,
}

/// The way in which the kernel of a cell was lost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KernelLost {
    /// The host killed it for this reason.
    Killed(ExitReason),
    /// The process exited.
    Exited,
}

/// Runs a cell after the cell with the number `last_count`. Returns its result, and the payloads that it has left for a
/// frontend if `cell.collect_payloads` is set.
///
/// # Errors
/// Returns the way in which the kernel was lost, and the output until then.
pub(crate) fn run(
    mut kernel: KernelHandles<'_>,
    cell: &CellRequest,
    observer: &Arc<dyn CellObserver>,
    limits: CellLimits,
    last_count: u64,
) -> Result<(CellResult, Vec<Value>), (KernelLost, Vec<Output>)> {
    let functions = if cell.tools { kernel.functions.take() } else { None };
    let output = CellOutput::new(observer.clone(), limits.output, kernel.client.scrubber());
    let mut execution = CellExecution {
        calls: functions.map(|socket| CellCalls::new(socket, observer)),
        received_at_start: kernel.client.received_bytes(),
        install_time_at_start: kernel.broker.elapsed(),
        cpu_time_at_start: limits.cpu_time.and_then(|_| process_tree_cpu_time(kernel.process.exit_fd())),
        kernel,
        observer,
        limits,
        output,
        started_at: Instant::now(),
        request_id: String::new(),
        progress: CellProgress::default(),
        interrupt: None,
        input: None,
        input_requests: 0,
    };
    match execution.run(cell) {
        Ok(mut reply) => {
            let mut payloads = reply.as_mut().map(|reply| std::mem::take(&mut reply.payloads)).unwrap_or_default();
            if !cell.collect_payloads {
                execution.output.add_pages(&std::mem::take(&mut payloads));
            }
            Ok((execution.result(reply, last_count), payloads))
        }
        Err(lost) => Err((lost, execution.output.take())),
    }
}

/// The event loop of a cell.
struct CellExecution<'a> {
    kernel: KernelHandles<'a>,
    observer: &'a Arc<dyn CellObserver>,
    limits: CellLimits,
    output: CellOutput,
    /// The calls of functions of the host, if the cell may make any.
    calls: Option<CellCalls<'a>>,
    started_at: Instant,
    /// The id of the `execute_request`.
    request_id: String,
    progress: CellProgress,
    interrupt: Option<PendingInterrupt>,
    /// The receiver of the reply to the current input request, and the time of the request.
    input: Option<(Receiver<InputReply>, Instant)>,
    input_requests: usize,
    /// The number of iopub bytes before the cell.
    received_at_start: u64,
    /// The time that installations had taken before the cell.
    install_time_at_start: Duration,
    /// The processor time that was used before the cell.
    cpu_time_at_start: Option<Duration>,
}

/// The progress of a cell according to the kernel's messages.
#[derive(Default)]
struct CellProgress {
    busy: bool,
    idle: bool,
    reply: Option<ExecuteReply>,
    raised: Option<CellError>,
    /// The time at which the first of the reply and the idle status arrived.
    first_reply_at: Option<Instant>,
}

/// An interrupt of the cell, and the steps taken so far.
struct PendingInterrupt {
    since: Instant,
    /// Set if the cell has reached its time limit.
    is_timeout: bool,
    signal_sent: bool,
    message_sent: bool,
}

impl CellExecution<'_> {
    /// Runs the cell. Returns the reply, unless it was lost.
    fn run(&mut self, cell: &CellRequest) -> Result<Option<ExecuteReply>, KernelLost> {
        self.request_id =
            self.kernel.client.execute(cell, self.limits.silent).map_err(|error| self.connection_lost(&error))?;
        let mut has_more = false;
        loop {
            let deadline = if has_more { Instant::now() } else { self.next_deadline() };
            let mut others: Vec<BorrowedFd<'_>> =
                vec![self.kernel.process.exit_fd(), self.kernel.interrupt.wakeup_fd()];
            others.extend(self.kernel.broker.poll_fd());
            others.extend(self.calls.as_ref().and_then(CellCalls::poll_fd));
            let ready = self.kernel.client.wait(&others, deadline).map_err(|error| self.connection_lost(&error))?;
            has_more = self.poll_channels().map_err(|error| self.connection_lost(&error))?;
            self.enforce_output_limit()?;
            if let Some(reply) = self.is_done() {
                // Calls that the code has made just before its end are its own, and not those of the next cell.
                if let Some(calls) = &mut self.calls {
                    calls.serve();
                }
                return Ok(reply);
            }
            // The process has exited, and all messages that it sent before are read.
            if ready[0] && !has_more {
                return Err(self.exited());
            }
            self.kernel.broker.serve(self.observer);
            has_more |= self.calls.as_mut().is_some_and(CellCalls::serve);
            self.forward_input_reply().map_err(|error| self.connection_lost(&error))?;
            self.handle_interrupts()?;
        }
    }

    /// Returns the time at which the loop must go on even without an event.
    fn next_deadline(&self) -> Instant {
        let now = Instant::now();
        let after = |milliseconds| now + Duration::from_millis(milliseconds);
        let mut deadline = after(1000);
        if self.input.is_some() || self.kernel.broker.is_busy() {
            deadline = after(20);
        }
        let is_calling = self.calls.as_ref().is_some_and(CellCalls::is_busy);
        if is_calling {
            // The time limit does not run: after the call, it does again.
            deadline = deadline.min(after(50));
        } else if let (Some(wall_time), None) = (self.limits.wall_time, &self.interrupt) {
            deadline = deadline.min(self.started_at + wall_time + self.other_time());
        }
        if self.limits.cpu_time.is_some() {
            deadline = deadline.min(after(100));
        }
        if let Some(interrupt) = &self.interrupt {
            deadline = deadline.min(if interrupt.signal_sent { after(100) } else { after(5) });
        }
        deadline
    }

    /// Returns the time that the cell has spent with installations, at most the time limit of one installation.
    fn install_time(&self) -> Duration {
        self.kernel.broker.elapsed().saturating_sub(self.install_time_at_start).min(self.kernel.broker.timeout())
    }

    /// Returns the time that does not count towards the time limit: that of installations, and that during which a
    /// function of the host is called, which the host limits.
    fn other_time(&self) -> Duration {
        self.install_time() + self.calls.as_ref().map_or(Duration::ZERO, CellCalls::elapsed)
    }

    /// Reads the messages that have arrived, up to a batch from each channel. Returns whether there may be more.
    fn poll_channels(&mut self) -> Result<bool, ZmtpError> {
        let mut has_more = false;
        for channel in [Channel::Iopub, Channel::Shell, Channel::Stdin, Channel::Control] {
            let mut left = MESSAGE_BATCH;
            while left > 0
                && let Some(message) = self.kernel.client.receive(channel)?
            {
                left -= 1;
                // Other messages belong to an earlier cell, or not to a cell.
                if message.parent == self.request_id {
                    self.dispatch(channel, &message);
                }
            }
            has_more |= left == 0;
        }
        Ok(has_more)
    }

    fn dispatch(&mut self, channel: Channel, message: &ReceivedMessage) {
        match channel {
            Channel::Iopub => match IopubMessage::parse(message) {
                Some(IopubMessage::Busy) => self.progress.busy = true,
                Some(IopubMessage::Idle) => self.progress.idle = true,
                Some(IopubMessage::Error(error)) => self.progress.raised = Some(error),
                Some(output) => self.output.add(output),
                None => {}
            },
            Channel::Shell => {
                if self.progress.reply.is_none() {
                    self.progress.reply = ExecuteReply::parse(message);
                }
            }
            Channel::Stdin => {
                if let Some(request) = InputRequest::parse(message) {
                    self.request_input(&request);
                }
            }
            Channel::Control => {}
        }
    }

    fn request_input(&mut self, request: &InputRequest) {
        self.input_requests += 1;
        if self.input_requests > MAX_INPUT_REQUESTS {
            return;
        }
        let receiver = self.observer.request_input(&request.prompt, request.secret).unwrap_or_else(|error| {
            let (sender, receiver) = std::sync::mpsc::channel();
            // Sending does not fail, since the receiver exists.
            let _ = sender.send(Err(error));
            receiver
        });
        self.input = Some((receiver, Instant::now()));
    }

    /// Sends the client's reply to an input request to the kernel, if it has arrived.
    fn forward_input_reply(&mut self) -> Result<(), ZmtpError> {
        let Some((receiver, requested_at)) = &self.input else { return Ok(()) };
        let refused = |error: InputError| format!("{REFUSED_PREFIX}{error}");
        let text = match receiver.try_recv() {
            Ok(Ok(line)) => line,
            Ok(Err(error)) => refused(error),
            Err(TryRecvError::Disconnected) => refused(InputError::Disconnected),
            Err(TryRecvError::Empty) if requested_at.elapsed() > INPUT_TIMEOUT => refused(InputError::TimedOut),
            Err(TryRecvError::Empty) => return Ok(()),
        };
        self.input = None;
        self.kernel.client.send_input_reply(text)
    }

    /// Kills the kernel if the cell has exceeded the limit of its output.
    fn enforce_output_limit(&self) -> Result<(), KernelLost> {
        let received = self.kernel.client.received_bytes() - self.received_at_start;
        let max_received = self.limits.output.saturating_mul(2).saturating_add(MAX_MESSAGE_BYTES);
        if self.output.exceeds_limit() || received > max_received {
            return Err(self.kill(ExitReason::Limit(LimitKind::Output)));
        }
        Ok(())
    }

    /// Returns the reply, once the reply and the idle status have arrived. The inner option is `None` if the reply was
    /// lost.
    fn is_done(&mut self) -> Option<Option<ExecuteReply>> {
        let CellProgress { idle, reply, first_reply_at, .. } = &mut self.progress;
        match (*idle, reply.is_some()) {
            (true, true) => return Some(reply.take()),
            (false, false) => return None,
            _ => {}
        }
        let since = *first_reply_at.get_or_insert_with(Instant::now);
        // ZeroMQ drops messages of iopub when there are too many.
        (since.elapsed() > IDLE_REPLY_SKEW).then(|| reply.take())
    }

    /// Carries out interrupts from other threads and enforces the limits of time: sends `SIGINT`, then an
    /// `interrupt_request`, and kills the kernel at last.
    fn handle_interrupts(&mut self) -> Result<(), KernelLost> {
        match self.kernel.interrupt.take() {
            InterruptRequest::Kill => return Err(self.kill(ExitReason::Cancelled)),
            InterruptRequest::Interrupt => self.start_interrupt(false),
            InterruptRequest::None => {}
        }
        if self.limits.wall_time.is_some_and(|limit| self.started_at.elapsed() >= limit + self.other_time()) {
            self.start_interrupt(true);
        }
        if let (Some(limit), Some(before)) = (self.limits.cpu_time, self.cpu_time_at_start)
            && process_tree_cpu_time(self.kernel.process.exit_fd())
                .is_some_and(|now| now.saturating_sub(before) > limit)
        {
            return Err(self.kill(ExitReason::Limit(LimitKind::CpuTime)));
        }
        let is_running = self.progress.busy || self.started_at.elapsed() > INTERRUPT_HOLDOFF;
        let Some(interrupt) = &mut self.interrupt else { return Ok(()) };
        if !interrupt.signal_sent && is_running {
            interrupt.signal_sent = true;
            self.kernel.process.interrupt();
            self.kernel.broker.cancel();
        }
        if !interrupt.message_sent && interrupt.since.elapsed() > INTERRUPT_MESSAGE_DELAY {
            interrupt.message_sent = true;
            // Errors are ignored: a kernel that does not read messages is killed soon.
            let _ = self.kernel.client.send_interrupt_request();
        }
        let grace = if interrupt.is_timeout { self.limits.grace } else { INTERRUPT_GRACE };
        if interrupt.since.elapsed() < grace {
            return Ok(());
        }
        let is_timeout = interrupt.is_timeout;
        Err(self.kill(if is_timeout { ExitReason::Limit(LimitKind::WallTime) } else { ExitReason::Cancelled }))
    }

    /// Starts to interrupt the cell, unless that has started.
    fn start_interrupt(&mut self, is_timeout: bool) {
        self.interrupt.get_or_insert_with(|| PendingInterrupt {
            since: Instant::now(),
            is_timeout,
            signal_sent: false,
            message_sent: false,
        });
    }

    /// Returns how the kernel was lost whose process has exited.
    fn exited(&self) -> KernelLost {
        match self.kernel.interrupt.take() {
            InterruptRequest::Kill => KernelLost::Killed(ExitReason::Cancelled),
            InterruptRequest::Interrupt | InterruptRequest::None => KernelLost::Exited,
        }
    }

    fn kill(&self, reason: ExitReason) -> KernelLost {
        self.kernel.process.kill();
        KernelLost::Killed(reason)
    }

    /// Returns how the kernel was lost whose connection failed, and kills its process if it still runs.
    fn connection_lost(&self, error: &ZmtpError) -> KernelLost {
        match error {
            ZmtpError::Closed if self.kernel.process.wait_until(Instant::now() + EXIT_AFTER_CLOSE_TIMEOUT) => {
                self.exited()
            }
            // The text that a cell prints in a loop may arrive in one message.
            ZmtpError::TooLong => self.kill(ExitReason::Limit(LimitKind::Output)),
            error => self.kill(ExitReason::Crash(error.to_string())),
        }
    }

    /// Returns the error of a cell that was interrupted and has no reply: ipykernel discards a `KeyboardInterrupt` that
    /// is raised before the cell's code begins, or after it has ended, and sends none.
    fn interrupt_error(&self) -> Option<CellError> {
        self.interrupt.as_ref().filter(|interrupt| interrupt.signal_sent)?;
        Some(CellError {
            name: "KeyboardInterrupt".to_owned(),
            message: String::new(),
            traceback: vec!["KeyboardInterrupt".to_owned()],
        })
    }

    fn result(&mut self, reply: Option<ExecuteReply>, last_count: u64) -> CellResult {
        let error = match &reply {
            Some(reply) => reply.error.clone(),
            None => self.progress.raised.clone().or_else(|| self.interrupt_error()),
        };
        let is_timeout = self.interrupt.as_ref().is_some_and(|interrupt| interrupt.is_timeout);
        let status = match (error, self.limits.wall_time.filter(|_| is_timeout)) {
            (None, _) => CellStatus::Ok,
            (Some(error), Some(after)) if error.name == "KeyboardInterrupt" => {
                CellStatus::TimedOut { after, waited: false, traceback: error.traceback }
            }
            (Some(error), _) => CellStatus::Error(error),
        };
        // The guest can send any number. A cell has the next one, or the last one if it is not recorded.
        let next = last_count.saturating_add(1);
        let count = reply.and_then(|reply| reply.execution_count);
        let execution_count = count.filter(|count| *count == last_count).unwrap_or(next);
        CellResult { execution_count, status, outputs: self.output.take() }
    }
}
