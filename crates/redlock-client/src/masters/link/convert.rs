//! Converts between the values of the client library and those of the protocol.

use redis::{Cmd, ErrorKind, RedisError};
use redlock_core::{Unknown, reply::Value, script::Arguments, unknown::shown};

/// The characters of an error that are shown: those of the client library may contain a reply.
const TEXT: usize = 256;

/// Appends keys and arguments to a command.
pub(crate) struct Packed<'a>(pub(crate) &'a mut Cmd);

impl Arguments for Packed<'_> {
    fn text(&mut self, text: &str) {
        self.0.arg(text);
    }

    fn number(&mut self, number: u64) {
        self.0.arg(number);
    }
}

/// Converts a result. The client library returns a server error either as a value or as an error.
pub(super) fn value(result: redis::RedisResult<redis::Value>) -> Result<Value, Unknown> {
    match result {
        Ok(redis::Value::ServerError(e)) => Err(Unknown::server(e.code(), e.details().unwrap_or_default())),
        Ok(value) => of_library(value),
        Err(e) => Err(unknown(&e)),
    }
}

pub(crate) fn of_library(value: redis::Value) -> Result<Value, Unknown> {
    Ok(match value {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(bytes) => Value::Text(bytes),
        redis::Value::SimpleString(text) => Value::Text(text.into_bytes()),
        redis::Value::Okay => Value::from("OK"),
        redis::Value::Array(items) => {
            let items = items.into_iter().map(of_library);
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        other => {
            return Err(Unknown::Reply(format!(
                "a value of this type is not expected: {}",
                shown(&format!("{other:?}"), 120)
            )));
        }
    })
}

/// Classifies an error of the client library. The text of a server error comes from the server; it names commands and
/// keys, never credentials.
pub(crate) fn unknown(error: &RedisError) -> Unknown {
    if let Some(code) = error.code() {
        return Unknown::server(code, error.detail().unwrap_or_default());
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => Unknown::Server {
            code: "WRONGPASS".into(),
            detail: "user or password not accepted".into(),
        },
        _ if error.is_connection_dropped() || error.is_io_error() => {
            Unknown::ConnectionLost(shown(&error.to_string(), TEXT))
        }
        _ => Unknown::Reply(shown(&error.to_string(), TEXT)),
    }
}
