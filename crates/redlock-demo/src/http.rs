//! A minimal HTTP client: GET over one kept connection, for responses with a `Content-Length`.
//!
//! An HTTP library for three paths of our own server would be the larger risk.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Far above any response of a replica; bounds the memory that a foreign server could make the demo use.
const LONGEST_BODY: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Client {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
        }
    }

    /// Drops the connection when a call fails or is cancelled, so that the next call cannot read a stale response.
    pub(super) async fn get(&mut self, path: &str) -> io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await?;
        let answer = read(&mut stream).await?;
        self.stream = Some(stream);
        Ok(answer)
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Answer> {
    let first = line(stream).await?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| odd(&first))?;
    let mut length = None;
    loop {
        let header = line(stream).await?;
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    let length = length
        .filter(|length| *length <= LONGEST_BODY)
        .ok_or_else(|| odd("no Content-Length, or one that is too large"))?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Answer { status, body })
}

async fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an answer: {what}"))
}
