//! The protocol of Redis: parses commands, writes replies of RESP2 and RESP3.

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
    /// Keys and values in turn.
    Map(Vec<Reply>),
    Push(Vec<Reply>),
}

impl Reply {
    pub(super) fn ok() -> Self {
        Self::Status("OK".into())
    }

    pub(super) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub(super) fn text(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }

    pub(super) fn write(&self, protocol: u8, out: &mut Vec<u8>) {
        let resp3 = protocol == 3;
        let line = |out: &mut Vec<u8>, text: String| out.extend_from_slice(text.as_bytes());
        match self {
            Self::Status(text) => line(out, format!("+{text}\r\n")),
            Self::Error(text) => line(out, format!("-{text}\r\n")),
            Self::Integer(number) => line(out, format!(":{number}\r\n")),
            Self::Bulk(bytes) => {
                line(out, format!("${}\r\n", bytes.len()));
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil => out.extend_from_slice(if resp3 { b"_\r\n" } else { b"$-1\r\n" }),
            Self::Array(items) => many(b'*', items.len(), items, protocol, out),
            Self::Map(items) if resp3 => many(b'%', items.len() / 2, items, protocol, out),
            Self::Map(items) => many(b'*', items.len(), items, protocol, out),
            Self::Push(items) => many(if resp3 { b'>' } else { b'*' }, items.len(), items, protocol, out),
        }
    }
}

fn many(kind: u8, count: usize, items: &[Reply], protocol: u8, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(format!("{count}\r\n").as_bytes());
    items.iter().for_each(|item| item.write(protocol, out));
}

/// The bytes do not follow the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Removes the first complete command from the buffer and returns it. Returns `None` for an incomplete one.
pub(super) fn take_command(buffer: &mut Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, Malformed> {
    let mut at = 0;
    let Some(count) = number(buffer, &mut at, b'*')? else {
        return Ok(None);
    };
    let mut command = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(length) = number(buffer, &mut at, b'$')? else {
            return Ok(None);
        };
        if buffer.len() < at + length + 2 {
            return Ok(None);
        }
        command.push(buffer[at..at + length].to_vec());
        at += length + 2;
    }
    buffer.drain(..at);
    Ok(Some(command))
}

/// Reads a line that consists of a kind and a number.
fn number(buffer: &[u8], at: &mut usize, kind: u8) -> Result<Option<usize>, Malformed> {
    let rest = &buffer[*at..];
    let Some(end) = rest.windows(2).take(32).position(|two| two == b"\r\n") else {
        return if rest.len() > 32 { Err(Malformed) } else { Ok(None) };
    };
    if rest[0] != kind {
        return Err(Malformed);
    }
    let digits = std::str::from_utf8(&rest[1..end]).map_err(|_| Malformed)?;
    *at += end + 2;
    digits.parse().map(Some).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_once_they_are_complete() {
        let whole = b"*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n".to_vec();
        for end in 0..whole.len() {
            let mut buffer = whole[..end].to_vec();
            let mut taken = 0;
            while take_command(&mut buffer).unwrap().is_some() {
                taken += 1;
            }
            assert_eq!(taken, usize::from(end >= 22));
        }
        let mut buffer = whole;
        let first = take_command(&mut buffer).unwrap().unwrap();
        assert_eq!(first, [b"ECHO".to_vec(), b"\r\n".to_vec()]);
        assert_eq!(take_command(&mut buffer), Ok(Some(vec![b"PING".to_vec()])));
        assert!(buffer.is_empty());
        assert_eq!(take_command(&mut b"+x\r\n".to_vec()), Err(Malformed));
    }
}
