//! Sends one HTTP request to a program on this machine.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redlock_testkit::eventually_blocking;

/// Generous, for a busy machine; no program under test takes so long to answer.
const BOUND: Duration = Duration::from_secs(20);

/// Sends a GET request; returns the status and the body of the answer.
pub fn get(port: u16, path: &str) -> io::Result<(u16, String)> {
    asked("GET", port, path).and_then(answered)
}

pub fn post(port: u16, path: &str) -> io::Result<(u16, String)> {
    asked("POST", port, path).and_then(answered)
}

/// Waits until `/livez` reports that the process is alive. The endpoint returns 503 if the elector does not answer
/// within 0.8 s, which a busy machine can cause.
pub fn wait_alive(port: u16) {
    eventually_blocking(BOUND, "the process is alive", || {
        match get(port, "/livez").map_err(|error| error.to_string())? {
            (200, _) => Ok(()),
            (status, body) => Err(format!("{status}: {body}")),
        }
    });
}

/// Sends a request without waiting for the answer.
pub fn asked(method: &str, port: u16, path: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(BOUND))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    Ok(stream)
}

/// Reads the answer to a request.
pub fn answered(mut stream: TcpStream) -> io::Result<(u16, String)> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    // A process that is killed while it answers sends an incomplete answer.
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Ok((status, body.to_owned()))
}
