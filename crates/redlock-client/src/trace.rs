//! Writes what the engines and the machines of this process are given and return into a file, for a replay.
//!
//! Off unless the process asks for it. Passwords and certificates are no input of an engine or of a machine: none is in a
//! trace.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
    sync::{
        OnceLock,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use crate::lease::trace::Trace;

/// One for the process.
static RECORDING: OnceLock<Recording> = OnceLock::new();

#[derive(Debug)]
struct Recording {
    trace: Trace,
    lines: Sender<Message>,
}

#[derive(Debug)]
enum Message {
    Line(String),
    /// Answered when all lines before it are in the file.
    Flush(Sender<()>),
}

/// From now on, every engine and machine that is made in this process is recorded. The file is `path` with the process id
/// behind it, and a number behind that where an earlier process with the same id left a file. A thread writes it, as soon as
/// there are lines: a process that is killed loses the last ones only.
///
/// Returns the name of the file.
///
/// # Errors
/// The file cannot be created.
pub fn record(path: &Path) -> io::Result<PathBuf> {
    let (path, file) = create(path)?;
    let (lines, incoming) = mpsc::channel();
    thread::Builder::new()
        .name("trace".into())
        .spawn(move || write(file, &incoming))?;
    let sink = lines.clone();
    let trace = Trace::new(move |line| _ = sink.send(Message::Line(line)));
    // A second trace of the same process would have nothing in it.
    RECORDING
        .set(Recording { trace, lines })
        .map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
    Ok(path)
}

/// Waits until everything that was recorded is in the file.
pub fn flush() {
    let Some(recording) = RECORDING.get() else { return };
    let (done, wait) = mpsc::channel();
    if recording.lines.send(Message::Flush(done)).is_ok() {
        // An error means that the thread has ended, and nothing is left to wait for.
        let _ = wait.recv();
    }
}

/// The trace of this process, if it is recorded.
pub(crate) fn current() -> Option<&'static Trace> {
    RECORDING.get().map(|recording| &recording.trace)
}

fn create(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut number = 0_u32;
    loop {
        let mut path = name.clone();
        if number > 0 {
            path.push(format!(".{number}"));
        }
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            opened => return opened.map(|file| (path.into(), file)),
        }
    }
}

/// Writes what has arrived, at once. After an error the rest is dropped: a trace with a gap could not be replayed.
fn write(mut file: File, incoming: &Receiver<Message>) {
    let mut failed = false;
    let mut text = String::new();
    while let Ok(first) = incoming.recv() {
        let mut flushed = Vec::new();
        for message in std::iter::once(first).chain(incoming.try_iter().take(AT_ONCE)) {
            match message {
                Message::Line(line) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                Message::Flush(done) => flushed.push(done),
            }
        }
        if !failed && let Err(error) = file.write_all(text.as_bytes()) {
            failed = true;
            tracing::error!(%error, "the trace ends here: writing its file failed");
        }
        text.clear();
        for done in flushed {
            // Nobody waits for it any more.
            let _ = done.send(());
        }
    }
}

/// Lines written at once: the memory of the text stays small when lines arrive faster than the file takes them.
const AT_ONCE: usize = 1024;
