//! Runs Lua scripts. All masters of a thread share one interpreter, which compiles each script once.

use std::{cell::RefCell, collections::BTreeMap};

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::{
    commands,
    database::{Bytes, Database},
    resp::Reply,
};

thread_local! {
    static INTERPRETER: Interpreter = Interpreter::new();
    /// The database of the script that runs.
    static RUNNING: RefCell<Option<Database>> = const { RefCell::new(None) };
}

struct Interpreter {
    lua: Lua,
    compiled: RefCell<BTreeMap<String, Function>>,
}

/// Executes a command of a client.
pub(super) fn execute(database: &mut Database, command: &[Bytes]) -> Reply {
    database.written = false;
    let name = command.first().map(|name| name.to_ascii_uppercase());
    match (name.as_deref(), command) {
        (Some(b"EVAL"), [_, source, rest @ ..]) => {
            let sha = sha1_smol::Sha1::from(source).digest().to_string();
            if let Err(error) = compile(&sha, source) {
                return error;
            }
            database.scripts.insert(sha.clone());
            run(database, &sha, rest)
        }
        (Some(b"EVALSHA"), [_, sha, rest @ ..]) => {
            let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
            if !database.scripts.contains(&sha) {
                return Reply::error("NOSCRIPT No matching script. Please use EVAL.");
            }
            run(database, &sha, rest)
        }
        (Some(b"SCRIPT"), [_, verb, source]) if verb.eq_ignore_ascii_case(b"LOAD") => {
            let sha = sha1_smol::Sha1::from(source).digest().to_string();
            if let Err(error) = compile(&sha, source) {
                return error;
            }
            database.scripts.insert(sha.clone());
            Reply::text(&sha)
        }
        (Some(b"SCRIPT"), [_, verb, ..]) if verb.eq_ignore_ascii_case(b"FLUSH") => {
            database.scripts.clear();
            Reply::ok()
        }
        _ => commands::execute(database, command),
    }
}

fn compile(sha: &str, source: &[u8]) -> Result<(), Reply> {
    INTERPRETER.with(|interpreter| {
        if interpreter.compiled.borrow().contains_key(sha) {
            return Ok(());
        }
        let chunk = interpreter.lua.load(source).set_name("@user_script");
        let function = chunk.into_function().map_err(|error| {
            Reply::error(
                format!("ERR Error compiling script (new function): {error}").replace(['\r', '\n'], " "),
            )
        })?;
        interpreter.compiled.borrow_mut().insert(sha.to_owned(), function);
        Ok(())
    })
}

/// Runs a compiled script. `rest` is the number of keys, the keys and the arguments.
fn run(database: &mut Database, sha: &str, rest: &[Bytes]) -> Reply {
    let Some((count, rest)) = rest.split_first() else {
        return Reply::error("ERR wrong number of arguments for 'eval' command");
    };
    let count = std::str::from_utf8(count)
        .ok()
        .and_then(|count| count.parse().ok());
    let Some((keys, arguments)) = count.and_then(|count| rest.split_at_checked(count)) else {
        return Reply::error("ERR Number of keys can't be greater than number of args");
    };
    let empty = Database::new(database.process.clone());
    let taken = std::mem::replace(database, empty);
    RUNNING.with(|running| *running.borrow_mut() = Some(taken));
    let result = INTERPRETER.with(|interpreter| interpreter.call(sha, keys, arguments));
    if let Some(taken) = RUNNING.with(|running| running.borrow_mut().take()) {
        *database = taken;
    }
    result.unwrap_or_else(|error| Reply::error(uncaught(&error, sha)))
}

/// Returns the error of a script that did not catch it: the code of a command's error comes first.
fn uncaught(error: &mlua::Error, sha: &str) -> String {
    let text = raised(error).unwrap_or_else(|| format!("ERR {error}"));
    let text = text.lines().next().unwrap_or_default().to_owned();
    format!("{text} script: {sha}, on @user_script:1.")
}

/// The error reply of a command that a script called.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raised(error: &mlua::Error) -> Option<String> {
    if let mlua::Error::CallbackError { cause, .. } = error {
        return raised(cause);
    }
    error.downcast_ref::<Raised>().map(|raised| raised.0.clone())
}

impl Interpreter {
    fn new() -> Self {
        let lua = Lua::new();
        let redis = lua.create_table().unwrap();
        let call = |raises: bool| {
            lua.create_function(move |lua, arguments: MultiValue| command(lua, arguments, raises))
                .unwrap()
        };
        redis.set("call", call(true)).unwrap();
        redis.set("pcall", call(false)).unwrap();
        for (name, field) in [("error_reply", "err"), ("status_reply", "ok")] {
            let reply = lua.create_function(move |lua, text: mlua::LuaString| {
                let table = lua.create_table()?;
                table.raw_set(field, text)?;
                Ok(table)
            });
            redis.set(name, reply.unwrap()).unwrap();
        }
        lua.globals().set("redis", redis).unwrap();
        Self {
            lua,
            compiled: RefCell::default(),
        }
    }

    fn call(&self, sha: &str, keys: &[Bytes], arguments: &[Bytes]) -> mlua::Result<Reply> {
        let function = self.compiled.borrow().get(sha).cloned();
        let Some(function) = function else {
            return Ok(Reply::error("NOSCRIPT No matching script. Please use EVAL."));
        };
        let globals = self.lua.globals();
        for (name, texts) in [("KEYS", keys), ("ARGV", arguments)] {
            let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
            for (index, text) in texts.iter().enumerate() {
                table.raw_set(index + 1, self.lua.create_string(text)?)?;
            }
            globals.raw_set(name, table)?;
        }
        let result: Value = function.call(())?;
        reply_of(&result)
    }
}

/// Executes `redis.call`, which raises errors, or `redis.pcall`, which returns them.
fn command(lua: &Lua, arguments: MultiValue, raises: bool) -> mlua::Result<Value> {
    let mut words = Vec::with_capacity(arguments.len());
    for argument in arguments {
        words.push(match argument {
            Value::String(text) => text.as_bytes().to_vec(),
            Value::Integer(number) => number.to_string().into_bytes(),
            Value::Number(number) => of_number(number),
            _ => {
                let error = "ERR Lua redis lib command arguments must be strings or integers";
                return Err(mlua::Error::external(Raised(error.into())));
            }
        });
    }
    let reply = RUNNING.with(|running| match running.borrow_mut().as_mut() {
        Some(database) => commands::execute(database, &words),
        None => Reply::error("ERR no script runs"),
    });
    match reply {
        Reply::Error(text) if raises => Err(mlua::Error::external(Raised(text))),
        reply => value_of(lua, &reply),
    }
}

/// Converts a number as Redis does: with 17 digits, and without a fraction if it has none.
fn of_number(number: f64) -> Bytes {
    let text = if number.fract() == 0.0 && number.abs() < 1e17 {
        format!("{number:.0}")
    } else {
        format!("{number}")
    };
    text.into_bytes()
}

fn value_of(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let field = |name: &str, text: &str| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Nil => Ok(Value::Boolean(false)),
        #[allow(clippy::cast_precision_loss)]
        Reply::Integer(number) => Ok(Value::Number(*number as f64)),
        Reply::Bulk(bytes) => Ok(Value::String(lua.create_string(bytes)?)),
        Reply::Status(text) => field("ok", text),
        Reply::Error(text) => field("err", text),
        Reply::Array(items) | Reply::Map(items) | Reply::Push(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (index, item) in items.iter().enumerate() {
                table.raw_set(index + 1, value_of(lua, item)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

fn reply_of(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Integer(*number),
        // As in Redis, the fraction is dropped.
        #[allow(clippy::cast_possible_truncation)]
        Value::Number(number) => Reply::Integer(*number as i64),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => reply_of_table(table)?,
        _ => Reply::Nil,
    })
}

fn reply_of_table(table: &Table) -> mlua::Result<Reply> {
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(Reply::Error(text.to_string_lossy()));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(Reply::Status(text.to_string_lossy()));
    }
    let mut items = Vec::new();
    for index in 1.. {
        match table.raw_get(index)? {
            Value::Nil => break,
            item => items.push(reply_of(&item)?),
        }
    }
    Ok(Reply::Array(items))
}
