//! One question over HTTP, to a program on this machine.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any program under test may take to answer.
const BOUND: Duration = Duration::from_secs(5);

/// Status and body.
pub fn get(port: u16, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(BOUND))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Ok((status, body.to_owned()))
}
