//! `belljar runs`: what the cells of the sessions in a directory wait for, answers to it, and what has become of runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use belljar_sessions::{ListedRun, Question, RunAnswer, RunCommand, RunId, RunOutcome, Store, StoredResult};
use belljar_tools::{CallLog, SavedRun};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::command_error::CommandError;
use crate::console::print_line;
use crate::outcome::fail;
use crate::untrusted_text::strip_control_chars;

/// The maximum length of the code and of a question in the list, in characters.
const MAX_LISTED: usize = 60;

/// A subcommand of `belljar runs`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum RunsCommand {
    /// List the runs that wait.
    List {
        /// Print JSON, one object per line.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        directory: SessionDirArgs,
    },
    /// Show a run: its code, its calls of tools, and what it waits for or how it has ended.
    Show {
        #[command(flatten)]
        run: RunArgs,
    },
    /// Approve the call that a run waits for.
    ///
    /// The server that has the directory continues the run, now or when it is started next.
    #[command(after_help = "\
Examples:
  belljar runs list --data-dir DIR
  belljar runs approve --data-dir DIR RUN
  belljar runs approve --data-dir DIR RUN --for run")]
    Approve {
        #[command(flatten)]
        run: RunArgs,
        /// The calls that are approved.
        #[arg(long = "for", value_enum, default_value_t, value_name = "CALLS")]
        scope: Scope,
    },
    /// Answer input() of a run with a line.
    Answer {
        #[command(flatten)]
        run: RunArgs,
        /// Line.
        line: String,
    },
    /// Deny the call that a run waits for: it raises ToolDenied in the code.
    Deny {
        #[command(flatten)]
        run: RunArgs,
    },
    /// Interrupt a run: it raises KeyboardInterrupt in the code.
    Cancel {
        #[command(flatten)]
        run: RunArgs,
    },
}

/// The calls that an approval is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// This call.
    #[default]
    Call,
    /// All calls of this tool in this run.
    Run,
    /// All calls of this tool in this session.
    Session,
}

/// The directory of sessions.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionDirArgs {
    /// Directory in which a server saves its sessions.
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA_DIR", hide_env_values = true)]
    data_dir: PathBuf,
}

impl SessionDirArgs {
    /// Opens the store in an existing directory.
    fn existing_store(&self) -> Result<Store, CommandError> {
        let name = self.data_dir.display();
        if !self.data_dir.is_dir() {
            return Err(CommandError::new(format!("--data-dir: {name} is not a directory")));
        }
        Store::open(&self.data_dir).map_err(|error| CommandError::new(format!("failed to open {name}: {error}")))
    }
}

/// A run in a directory.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// Run, by the ID of `belljar runs list`.
    run: String,
    #[command(flatten)]
    directory: SessionDirArgs,
}

/// Runs a subcommand of `belljar runs`.
pub(crate) fn runs(command: &RunsCommand) -> ExitCode {
    let result = match command {
        RunsCommand::List { json, directory } => list(directory, *json),
        RunsCommand::Show { run } => show(run),
        RunsCommand::Approve { run, scope } => {
            let line = match scope {
                Scope::Call => "yes",
                Scope::Run => "run",
                Scope::Session => "session",
            };
            answer(run, &RunAnswer::Text(line.into()), "approved")
        }
        RunsCommand::Answer { run, line } => answer(run, &RunAnswer::Text(line.clone()), "answered"),
        RunsCommand::Deny { run } => answer(run, &RunAnswer::Declined, "denied"),
        RunsCommand::Cancel { run } => cancel(run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn list(directory: &SessionDirArgs, as_json: bool) -> Result<(), CommandError> {
    for listed in waiting_runs(directory)? {
        let info = &listed.run.info;
        if as_json {
            print_line(listed_as_json(&listed).to_string());
            continue;
        }
        let question = listed.run.questions.first().map_or("", |question| question.message.as_str());
        let waits = if question.is_empty() { "waits for a timer or a call".to_owned() } else { first_line(question) };
        print_line(format!("{}  {}  {waits}", info.id.as_str(), age(info.began)));
    }
    Ok(())
}

fn show(args: &RunArgs) -> Result<(), CommandError> {
    let listed = match args.find() {
        Ok(listed) => listed,
        Err(error) => {
            let ended = args.find_result()?.ok_or(error)?;
            show_result(&ended);
            return Ok(());
        }
    };
    let info = &listed.run.info;
    print_line(format!(
        "run {}, in session {}, began {} ago",
        info.id.as_str(),
        listed.session.as_str(),
        age(info.began)
    ));
    if listed.run.questions.is_empty() {
        print_line("It waits for a timer or a call, and asks nothing.");
    }
    for Question { message, .. } in &listed.run.questions {
        print_line(strip_control_chars(message));
    }
    // What another build has saved in another form is left out.
    let saved: Option<SavedRun> = serde_json::from_value(listed.run.calls.clone()).unwrap_or_default();
    if let Some(saved) = &saved {
        print_calls(saved.log());
    }
    print_line("");
    print_line(strip_control_chars(&info.code));
    Ok(())
}

/// Prints the calls of tools that a run has made so far.
fn print_calls(log: &CallLog) {
    if log.count() == 0 {
        return;
    }
    print_line("");
    print_line(format!("calls of tools so far: {}", log.count()));
    for call in &log.calls {
        let line = format!("{}.{}({}): {}", call.server, call.tool, first_line(&call.arguments), call.status.name());
        print_line(format!("  {}", strip_control_chars(&line)));
    }
    if log.omitted > 0 {
        print_line(format!("  and {} more", log.omitted));
    }
}

/// Prints how a run has ended, whose result is stored.
fn show_result(ended: &StoredResult) {
    let StoredResult { info, session, outcome, call_count, .. } = ended;
    print_line(format!("run {}, in session {session}, began {} ago", info.id.as_str(), age(info.began)));
    let outcome = outcome.map_or("", |outcome| match outcome {
        RunOutcome::Error => " with an error",
        RunOutcome::Completed | RunOutcome::Paused => " without an error",
    });
    print_line(format!("It ended {} ago{outcome}. The tool resume_run returns its result.", age(ended.ended)));
    if let Some(calls) = call_count {
        print_line(format!("calls of tools: {calls}"));
    }
    print_line("");
    print_line(strip_control_chars(&info.code));
}

fn answer(args: &RunArgs, answer: &RunAnswer, what: &str) -> Result<(), CommandError> {
    let listed = args.find()?;
    let Some(question) = listed.run.questions.first() else {
        return Err(CommandError::new(format!("run {} asks nothing", args.run))
            .with_hint("`belljar runs cancel` interrupts it"));
    };
    let command = RunCommand::Answer { call: question.call, answer: answer.clone() };
    args.submit(&listed, &command, what, &first_line(&question.message))
}

fn cancel(args: &RunArgs) -> Result<(), CommandError> {
    args.submit(&args.find()?, &RunCommand::Cancel, "cancelled", &args.run)
}

/// Returns the runs that wait. Those whose code ran when their server ended are gone.
fn waiting_runs(directory: &SessionDirArgs) -> Result<Vec<ListedRun>, CommandError> {
    let mut runs = directory.existing_store()?.runs().map_err(|error| format!("failed to read the runs: {error}"))?;
    runs.retain(|listed| !listed.is_lost);
    Ok(runs)
}

impl RunArgs {
    fn find(&self) -> Result<ListedRun, CommandError> {
        let id = RunId::parse(&self.run);
        let found = waiting_runs(&self.directory)?.into_iter().find(|listed| Some(&listed.run.info.id) == id.as_ref());
        found.ok_or_else(|| {
            CommandError::new(format!("run {} does not wait", self.run))
                .with_hint("`belljar runs list` lists the runs that wait")
        })
    }

    /// Stores a command for the server, and prints what it does to which `object`. Another command that no server has
    /// taken yet is replaced.
    fn submit(&self, listed: &ListedRun, command: &RunCommand, what: &str, object: &str) -> Result<(), CommandError> {
        let store = self.directory.existing_store()?;
        let id = &listed.run.info.id;
        if store.pending_run_command(id).as_ref() == Some(command) {
            print_line(format!("already {what}, and no server has continued the run yet: {object}"));
            return Ok(());
        }
        store.command_run(id, command)?;
        print_line(format!("{what}: {object}"));
        Ok(())
    }

    /// Finds the result of a run that has ended, and whose client had left.
    fn find_result(&self) -> Result<Option<StoredResult>, CommandError> {
        let Some(id) = RunId::parse(&self.run) else { return Ok(None) };
        Ok(self.directory.existing_store()?.result(&id))
    }
}

fn listed_as_json(listed: &ListedRun) -> serde_json::Value {
    let ListedRun { session, run, .. } = listed;
    json!({
        "run": run.info.id,
        "session": session.as_str(),
        "began": run.info.began,
        "wake_at": run.wake_at,
        "outcome": RunOutcome::Paused,
        "call_count": run.call_count,
        "code": run.info.code,
        "questions": run.questions,
    })
}

/// Returns the first line of a text, which may come from a server or from code, within the width of a list.
fn first_line(text: &str) -> String {
    let line: String = text.lines().next().unwrap_or_default().chars().take(MAX_LISTED).collect();
    strip_control_chars(&line).into_owned()
}

/// Returns the time since `began`, in milliseconds since 1970.
fn age(began: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = now.saturating_sub(Duration::from_millis(began)).as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
