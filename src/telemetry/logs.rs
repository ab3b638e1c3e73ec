//! Structured events on the standard error.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use thiserror::Error;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, filter::ParseError, util::SubscriberInitExt};

use crate::{clock, lease::BootInstant};

/// The format of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// One line for human readers.
    #[default]
    Text,
    /// One JSON object a line: `timestamp`, `level`, `target`, `message`, and the fields of the event next to them.
    Json,
}

#[derive(Debug, Error)]
pub(crate) enum LogError {
    #[error(
        "log level {level:?} is not valid: expected error, warn, info, debug or trace, or target=level,…"
    )]
    Level { level: String, source: ParseError },
    #[error("the standard error cannot be opened for the log: {0}")]
    Open(io::Error),
    #[error("setting up the log: {0}")]
    Twice(String),
}

/// The number of lines that wait while the standard error is not read. At some 400 bytes a line these take 6 MiB of the
/// 256 MiB that the chart allows the operator, and hold hours of its log.
const BUFFERED: usize = 16_384;
/// The minimum time between two reports of dropped lines.
const REPORTED_EVERY: Duration = Duration::from_secs(1);

/// The counter of the lines that were dropped by this process.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();
/// The guard that ends the writing thread.
static WRITING: Mutex<Option<WorkerGuard>> = Mutex::new(None);

/// Starts writing. `level` is a level or a list of `target=level`.
///
/// A separate thread writes, so that a standard error that is not read blocks no other thread. Lines beyond the buffer
/// are dropped and counted. A [`Flush`] writes the waiting lines at the end of the process.
///
/// # Errors
///
/// Returns an error if the level is invalid, the standard error cannot be opened, or the log runs already.
pub(crate) fn start(format: Format, level: &str) -> Result<(), LogError> {
    // The sender of a request reports its failure with its meaning, so `kube_client` would only repeat it. The same
    // applies to a watch: `kube_runtime` would warn at every retry that a right is missing.
    let quiet = format!("kube_client=off,kube_runtime=error,{level}");
    let filter = EnvFilter::try_new(quiet).map_err(|source| LogError::Level {
        level: level.to_owned(),
        source,
    })?;
    // Not `io::stderr()`: a write that blocks would hold its lock, and with it every other message of this process.
    let stderr = io::stderr()
        .as_fd()
        .try_clone_to_owned()
        .map_err(LogError::Open)?;
    let (lines, worker) = lossy(BUFFERED, File::from(stderr));
    let dropped = lines.error_counter();
    let events = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines);
    let started = match format {
        Format::Text => events.with_ansi(io::stderr().is_terminal()).finish().try_init(),
        Format::Json => events.json().flatten_event(true).finish().try_init(),
    };
    started.map_err(|cause| LogError::Twice(cause.to_string()))?;
    let _ = DROPPED.set(dropped);
    *WRITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
    Ok(())
}

/// Lines of the log that were dropped since the start of this process, because the standard error was not read.
pub(super) fn dropped_lines() -> usize {
    DROPPED.get().map_or(0, ErrorCounter::dropped_lines)
}

/// Writes the waiting lines when it is dropped: at the end of `main`, after all code that may log. Waits at most about
/// one second for a standard error that is not read.
#[derive(Debug, Default)]
#[must_use = "lines that wait at the end of the process are lost without it"]
pub(crate) struct Flush(());

impl Drop for Flush {
    fn drop(&mut self) {
        let worker = WRITING.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(worker);
    }
}

/// Returns a writer that passes lines to a thread, which writes them to `out`, and that drops a line instead of
/// waiting.
fn lossy(limit: usize, out: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    let dropped = Arc::new(OnceLock::new());
    let reporting = Reporting {
        out,
        dropped: dropped.clone(),
        reported: 0,
        last: None,
    };
    let (lines, worker) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(limit)
        .thread_name("redlock-log")
        .finish(reporting);
    let _ = dropped.set(lines.error_counter());
    (lines, worker)
}

/// Writes lines, and reports dropped ones as soon as a line could be written again.
struct Reporting<W> {
    out: W,
    /// Known once the thread is started.
    dropped: Arc<OnceLock<ErrorCounter>>,
    reported: usize,
    last: Option<BootInstant>,
}

impl<W> Reporting<W> {
    /// Logs a report, which is queued behind the lines that were not dropped. It counts all lines since the start,
    /// because a report may be dropped as well.
    fn report(&mut self, now: BootInstant) {
        let dropped = self.dropped.get().map_or(0, ErrorCounter::dropped_lines);
        let too_soon = self.last.is_some_and(|last| now < last + REPORTED_EVERY);
        if dropped == self.reported || too_soon {
            return;
        }
        (self.reported, self.last) = (dropped, Some(now));
        tracing::warn!(
            dropped_since_start = dropped,
            "log lines were dropped: the standard error was not read fast enough"
        );
    }
}

impl<W: Write> Write for Reporting<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.out.write_all(line)?;
        self.report(clock::now());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const BOUND: Duration = Duration::from_secs(10);

    /// Blocks until its line is received.
    struct Pipe(SyncSender<String>);

    impl Write for Pipe {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8_lossy(line).into_owned();
            self.0.send(text).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn pipe() -> (Pipe, Receiver<String>) {
        let (sender, receiver) = sync_channel(0);
        (Pipe(sender), receiver)
    }

    #[test]
    fn lines_beyond_the_buffer_are_dropped_and_counted() {
        let (out, reader) = pipe();
        let (mut lines, worker) = lossy(4, out);
        let written = 100;
        for number in 0..written {
            lines.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        let dropped = lines.error_counter().dropped_lines();
        // Four lines wait, and the thread may have taken one.
        assert!((written - 5..=written - 4).contains(&dropped), "{dropped}");
        let kept: Vec<String> = (dropped..written)
            .map(|_| reader.recv_timeout(BOUND).unwrap())
            .collect();
        assert_eq!(kept[0], "0\n");
        writeln!(lines, "again").unwrap();
        assert_eq!(reader.recv_timeout(BOUND).unwrap(), "again\n");
        assert_eq!(lines.error_counter().dropped_lines(), dropped);
        drop(reader);
        drop(worker);
    }

    #[test]
    fn dropped_lines_are_reported_once_and_not_more_often_than_each_second() {
        let (mut lines, worker) = lossy(1, io::sink());
        drop(worker);
        let dropped = Arc::new(OnceLock::new());
        dropped.set(lines.error_counter()).unwrap();
        // Waits for the end of the thread, which takes no line afterwards.
        while lines.error_counter().dropped_lines() == 0 {
            lines.write_all(b"dropped\n").unwrap();
        }
        let mut reporting = Reporting {
            out: io::sink(),
            dropped,
            reported: 1,
            last: None,
        };
        let at = |millis: u64| BootInstant::from_nanos(millis * 1_000_000);
        reporting.report(at(0));
        assert_eq!(reporting.last, None, "no more were dropped");
        for (now, reported) in [(1000, 2), (1500, 2), (2000, 4), (9000, 5)] {
            lines.write_all(b"dropped\n").unwrap();
            reporting.report(at(now));
            assert_eq!(reporting.reported, reported, "{now}");
        }
        let last = reporting.last;
        reporting.report(at(20_000));
        assert_eq!(reporting.last, last, "no more were dropped");
    }
}
