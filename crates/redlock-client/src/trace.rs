//! Writes the inputs and outputs of the engines and the machines of this process into a file, for a replay.
//!
//! Off unless the process enables it. Passwords and certificates are not inputs of an engine or a machine, so
//! a trace never contains them.

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

/// The recording of the process.
static RECORDING: OnceLock<Recording> = OnceLock::new();

#[derive(Debug)]
struct Recording {
    trace: Trace,
    lines: Sender<Message>,
}

#[derive(Debug)]
enum Message {
    Line(String),
    /// Answered once all earlier lines are in the file.
    Flush(Sender<()>),
}

/// Records every engine and machine that this process creates after this call. The file is `path` with the
/// process id appended, and then a number if an earlier process with the same id left a file. A thread writes
/// lines as soon as they arrive: a process that is killed loses only the last lines.
///
/// Returns the name of the file.
///
/// # Errors
/// Returns an error if the file cannot be created.
pub fn record(path: &Path) -> io::Result<PathBuf> {
    let (path, file) = create(path)?;
    let (lines, incoming) = mpsc::channel();
    thread::Builder::new()
        .name("trace".into())
        .spawn(move || write(file, &incoming))?;
    let sink = lines.clone();
    let trace = Trace::new(move |line| _ = sink.send(Message::Line(line)));
    // A second trace of the same process would be empty.
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
        // An error means that the thread has ended, so there is nothing to wait for.
        let _ = wait.recv();
    }
}

/// Returns the trace of this process, if it is recorded.
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

/// Writes lines as they arrive. After an error the rest is dropped: a trace with a gap could not be replayed.
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
            // The receiver may be gone.
            let _ = done.send(());
        }
    }
}

/// Number of lines written at once. Bounds the memory of the text when lines arrive faster than the file
/// takes them.
const AT_ONCE: usize = 1024;
