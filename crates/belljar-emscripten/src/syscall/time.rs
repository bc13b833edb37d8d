//! Clocks, sleeping and the calendar. The guest's time zone is UTC.

use wasmtime::{Linker, Result};

use super::calendar::BrokenDown;
use crate::Errno;
use crate::clock::RESOLUTION;
use crate::guest_memory::{GuestMemory, Ptr};
use crate::host::{Call, Host, INTERRUPTED, split};
use crate::recording::Recording;
use crate::stop::SleepResult;

/// `CLOCK_REALTIME`.
const REALTIME: u32 = 0;
/// `CLOCK_THREAD_CPUTIME_ID`, the last clock of WASI. All but the first are the monotonic clock, as in Emscripten.
const LAST_CLOCK: u32 = 3;
/// The time zone's name, which `_tzset_js` writes.
const ZONE: &[u8] = b"UTC\0";

pub(super) fn define(linker: &mut Linker<Host>) -> Result<()> {
    const WASI: &str = "wasi_snapshot_preview1";
    linker.func_wrap(WASI, "clock_time_get", clock_time_get)?;
    linker.func_wrap(WASI, "clock_res_get", clock_res_get)?;
    linker.func_wrap("env", "emscripten_date_now", date_now)?;
    linker.func_wrap("env", "emscripten_get_now", get_now)?;
    linker.func_wrap("env", "emscripten_get_now_res", || RESOLUTION.as_nanos() as f64)?;
    linker.func_wrap("env", "_tzset_js", tzset)?;
    linker.func_wrap("env", "_localtime_js", break_down)?;
    linker.func_wrap("env", "_gmtime_js", break_down)?;
    linker.func_wrap("env", "_timegm_js", make_time)?;
    linker.func_wrap("env", "_mktime_js", make_time)?;
    linker.func_wrap("env", "_setitimer_js", setitimer)?;
    Ok(())
}

/// Redefines the functions that in newer releases of Emscripten return whether a time could be broken down.
pub(super) fn define_answering(linker: &mut Linker<Host>) -> Result<()> {
    let answering = |mut call: Call<'_>, time: i64, tm: Ptr| -> Result<i32> {
        let (mut memory, _) = split(&mut call)?;
        let Some(broken_down) = BrokenDown::from_seconds(time) else { return Ok(1) };
        Ok(i32::from(broken_down.write(&mut memory, tm).is_err()))
    };
    linker.allow_shadowing(true);
    linker.func_wrap("env", "_localtime_js", answering)?;
    linker.func_wrap("env", "_gmtime_js", answering)?;
    linker.allow_shadowing(false);
    Ok(())
}

fn clock_time_get(mut call: Call<'_>, clock: u32, _precision: i64, out: Ptr) -> Result<i32> {
    let (mut memory, host) = split(&mut call)?;
    let time = match clock {
        REALTIME => host.clock.realtime(),
        _ if clock <= LAST_CLOCK => host.clock.monotonic(),
        _ => return Ok(Errno::EINVAL.positive()),
    };
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ok(status(memory.write_u64(out, nanoseconds)))
}

fn clock_res_get(mut call: Call<'_>, clock: u32, out: Ptr) -> Result<i32> {
    let (mut memory, _) = split(&mut call)?;
    if clock > LAST_CLOCK {
        return Ok(Errno::EINVAL.positive());
    }
    Ok(status(memory.write_u64(out, u64::from(RESOLUTION.subsec_nanos()))))
}

fn status(result: Result<(), Errno>) -> i32 {
    result.map_or_else(Errno::positive, |()| 0)
}

/// Returns whole milliseconds since 1970, as JavaScript's `Date.now`.
fn date_now(call: Call<'_>) -> f64 {
    call.data().clock.realtime().as_millis() as f64
}

/// Returns milliseconds on the monotonic clock.
///
/// libc's `emscripten_thread_sleep` calls this until its time is up, and is the only caller that does so in a tight
/// loop: in such a loop the host sleeps. A signal ends the sleep: the host then returns a time after the end of any
/// sleep.
fn get_now(mut call: Call<'_>) -> Result<f64> {
    const AFTER_EVERY_SLEEP: f64 = 1e15;
    let host = call.data_mut();
    host.stop.check()?;
    let is_replaying = host.recording().is_some_and(Recording::is_replaying);
    if !is_replaying && let Some((nap, waited)) = host.clock.on_read() {
        let wake = host.stop.sleep(nap)?;
        host.clock.on_sleep();
        if let Some(recording) = host.recording() {
            recording.on_sleep(waited, None, host.clock.monotonic_of_host());
        }
        if wake == SleepResult::Signal {
            if let Some(recording) = host.recording() {
                recording.set_incomplete(INTERRUPTED);
            }
            host.clock.reset_busy_wait();
            return Ok(AFTER_EVERY_SLEEP);
        }
    }
    Ok(host.clock.monotonic().as_secs_f64() * 1000.0)
}

fn tzset(mut call: Call<'_>, timezone: Ptr, daylight: Ptr, standard: Ptr, summer: Ptr) -> Result<()> {
    let (mut memory, _) = split(&mut call)?;
    let mut write = || -> Result<(), Errno> {
        memory.write_i32(timezone, 0)?;
        memory.write_i32(daylight, 0)?;
        memory.write(standard, ZONE)?;
        memory.write(summer, ZONE)
    };
    // An error cannot be reported, and libc passes its own variables.
    let _ = write();
    Ok(())
}

/// Implements `_gmtime_js` and `_localtime_js`. They cannot report an error: a time beyond `tm_year` becomes
/// 1900-01-00, as in Emscripten.
fn break_down(mut call: Call<'_>, time: i64, tm: Ptr) -> Result<()> {
    let (mut memory, _) = split(&mut call)?;
    let _ = BrokenDown::from_seconds(time).unwrap_or_default().write(&mut memory, tm);
    Ok(())
}

/// Implements `_timegm_js` and `_mktime_js`: returns the time and normalises the fields; returns -1 if the year is out
/// of range.
fn make_time(mut call: Call<'_>, tm: Ptr) -> Result<i64> {
    fn make(memory: &mut GuestMemory<'_>, tm: Ptr) -> Result<i64, Errno> {
        let time = BrokenDown::read(memory, tm)?.to_seconds();
        BrokenDown::from_seconds(time).ok_or(Errno::EOVERFLOW)?.write(memory, tm)?;
        Ok(time)
    }
    let (mut memory, _) = split(&mut call)?;
    Ok(make(&mut memory, tm).unwrap_or(-1))
}

/// Accepts the timer, which never fires: Emscripten's timers fire in the event loop, which does not exist here.
fn setitimer(_which: i32, _milliseconds: f64) -> i32 {
    0
}
