//! The commands on keys.

use std::collections::BTreeMap;

use super::{
    database::{Bytes, Database, Entry, Value, WRONG_TYPE, WriteRefusal},
    resp::Reply,
};

const SYNTAX: &str = "ERR syntax error";
const NOT_A_NUMBER: &str = "ERR value is not an integer or out of range";

/// Executes a command, outside of a script or by one.
pub(super) fn execute(database: &mut Database, command: &[Bytes]) -> Reply {
    let Some((name, arguments)) = command.split_first() else {
        return Reply::error("ERR Please specify at least one argument for this redis.call");
    };
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let writes = matches!(&*name, "SET" | "DEL" | "PEXPIRE" | "HSET" | "HDEL" | "FLUSHALL");
    if writes {
        if let Some(refusal) = refusal(database, &name) {
            return Reply::error(refusal.text());
        }
        database.written = true;
    }
    let result = match &*name {
        "GET" => get(database, arguments),
        "MGET" => Ok(Reply::Array(
            arguments.iter().map(|key| text(database, key)).collect(),
        )),
        "SET" => set(database, arguments),
        "DEL" => Ok(count(arguments, |key| database.remove(key))),
        "EXISTS" => Ok(count(arguments, |key| database.get(key).is_some())),
        "PTTL" => pttl(database, arguments),
        "PEXPIRE" => pexpire(database, arguments),
        "HGET" => hget(database, arguments),
        "HMGET" => hmget(database, arguments),
        "HGETALL" => hgetall(database, arguments),
        "HSCAN" => hscan(database, arguments),
        "HSET" => hset(database, arguments),
        "HDEL" => hdel(database, arguments),
        "SCAN" => scan(database, arguments),
        "PUBLISH" => match arguments {
            [channel, message] => Ok(Reply::Integer(database.publish(channel, message))),
            _ => Err(SYNTAX),
        },
        "TIME" => Ok(Reply::Array(vec![
            Reply::text(&(database.now / 1_000_000).to_string()),
            Reply::text(&(database.now % 1_000_000).to_string()),
        ])),
        "INFO" => Ok(info(database, arguments)),
        "PING" => Ok(Reply::Status("PONG".into())),
        "FLUSHALL" => {
            database.flush();
            Ok(Reply::ok())
        }
        _ => {
            return Reply::error(format!(
                "ERR unknown command '{name}', with args beginning with: "
            ));
        }
    };
    result.unwrap_or_else(Reply::error)
}

/// Returns the reason why this command may not write now.
fn refusal(database: &Database, name: &str) -> Option<WriteRefusal> {
    let refusal = database.refusal.filter(|_| !database.written)?;
    let needs_memory = matches!(name, "SET" | "HSET");
    (refusal != WriteRefusal::OutOfMemory || needs_memory).then_some(refusal)
}

type Result = std::result::Result<Reply, &'static str>;

fn count(keys: &[Bytes], mut counts: impl FnMut(&[u8]) -> bool) -> Reply {
    let found = keys.iter().filter(|key| counts(key)).count();
    Reply::Integer(i64::try_from(found).unwrap())
}

fn integer(text: &[u8]) -> std::result::Result<i64, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| NOT_A_NUMBER)?;
    text.parse().map_err(|_| NOT_A_NUMBER)
}

fn get(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key] = arguments else { return Err(SYNTAX) };
    match database.get(key).map(|entry| &entry.value) {
        Some(Value::Hash(_)) => Err(WRONG_TYPE),
        Some(Value::Text(text)) => Ok(Reply::Bulk(text.clone())),
        None => Ok(Reply::Nil),
    }
}

/// Returns the text of a key; nil for a key of another type.
fn text(database: &mut Database, key: &[u8]) -> Reply {
    match database.get(key).map(|entry| &entry.value) {
        Some(Value::Text(text)) => Reply::Bulk(text.clone()),
        Some(Value::Hash(_)) | None => Reply::Nil,
    }
}

fn set(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key, value, options @ ..] = arguments else {
        return Err(SYNTAX);
    };
    let mut expires = None;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let option = String::from_utf8_lossy(option).to_ascii_uppercase();
        let unit = match &*option {
            "PX" => 1,
            "EX" => 1_000,
            "NX" if database.get(key).is_some() => return Ok(Reply::Nil),
            "XX" if database.get(key).is_none() => return Ok(Reply::Nil),
            "NX" | "XX" => continue,
            _ => return Err(SYNTAX),
        };
        let left = integer(options.next().ok_or(SYNTAX)?)?;
        let left = u64::try_from(left).ok().filter(|left| *left > 0);
        let left = left.ok_or("ERR invalid expire time in 'set' command")?;
        expires = Some(database.milliseconds() + left * unit);
    }
    let value = Value::Text(value.clone());
    database.put(key, Entry { value, expires });
    Ok(Reply::ok())
}

fn pttl(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key] = arguments else { return Err(SYNTAX) };
    let now = database.milliseconds();
    let left = match database.get(key).map(|entry| entry.expires) {
        None => -2,
        Some(None) => -1,
        Some(Some(expires)) => i64::try_from(expires.saturating_sub(now)).unwrap(),
    };
    Ok(Reply::Integer(left))
}

fn pexpire(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key, left] = arguments else {
        return Err(SYNTAX);
    };
    let (left, now) = (integer(left)?, database.milliseconds());
    let Some(entry) = database.get(key) else {
        return Ok(Reply::Integer(0));
    };
    match u64::try_from(left) {
        Ok(left @ 1..) => entry.expires = Some(now + left),
        _ => drop(database.remove(key)),
    }
    Ok(Reply::Integer(1))
}

/// Returns the fields of a hash, empty if the key does not exist.
fn hash<'a>(database: &'a mut Database, key: &[u8]) -> std::result::Result<Fields<'a>, &'static str> {
    match database.get(key).map(|entry| &mut entry.value) {
        Some(Value::Hash(fields)) => Ok(Some(fields)),
        Some(Value::Text(_)) => Err(WRONG_TYPE),
        None => Ok(None),
    }
}

type Fields<'a> = Option<&'a mut BTreeMap<Bytes, Bytes>>;

fn field(fields: &Fields<'_>, name: &[u8]) -> Reply {
    let value = fields.as_ref().and_then(|fields| fields.get(name));
    value.map_or(Reply::Nil, |value| Reply::Bulk(value.clone()))
}

fn hget(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key, name] = arguments else {
        return Err(SYNTAX);
    };
    Ok(field(&hash(database, key)?, name))
}

fn hmget(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key, names @ ..] = arguments else {
        return Err(SYNTAX);
    };
    let fields = hash(database, key)?;
    Ok(Reply::Array(
        names.iter().map(|name| field(&fields, name)).collect(),
    ))
}

fn hgetall(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key] = arguments else { return Err(SYNTAX) };
    let fields = hash(database, key)?.into_iter().flat_map(|fields| fields.iter());
    let both = fields.flat_map(|(name, value)| [name, value]);
    Ok(Reply::Array(both.map(|text| Reply::Bulk(text.clone())).collect()))
}

/// Returns all fields at once, as Redis does for a hash of few fields.
fn hscan(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key, _cursor, ..] = arguments else {
        return Err(SYNTAX);
    };
    let fields = hgetall(database, std::slice::from_ref(key))?;
    Ok(Reply::Array(vec![Reply::text("0"), fields]))
}

fn hset(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key, pairs @ ..] = arguments else {
        return Err(SYNTAX);
    };
    if pairs.is_empty() || pairs.len() % 2 == 1 {
        return Err("ERR wrong number of arguments for 'hset' command");
    }
    if hash(database, key)?.is_none() {
        let value = Value::Hash(BTreeMap::new());
        database.put(key, Entry { value, expires: None });
    }
    let Some(fields) = hash(database, key)? else {
        return Err(WRONG_TYPE);
    };
    let pairs = pairs.chunks_exact(2);
    let new = pairs.filter(|pair| fields.insert(pair[0].clone(), pair[1].clone()).is_none());
    Ok(Reply::Integer(i64::try_from(new.count()).unwrap()))
}

fn hdel(database: &mut Database, arguments: &[Bytes]) -> Result {
    let [key, names @ ..] = arguments else {
        return Err(SYNTAX);
    };
    let Some(fields) = hash(database, key)? else {
        return Ok(Reply::Integer(0));
    };
    let removed = count(names, |name| fields.remove(name).is_some());
    if fields.is_empty() {
        database.remove(key);
    }
    Ok(removed)
}

/// Returns all matching keys in one page: every key that exists during a walk is thus returned.
fn scan(database: &mut Database, arguments: &[Bytes]) -> Result {
    let mut pattern = None;
    for option in arguments.iter().skip(1).collect::<Vec<_>>().chunks(2) {
        if let [name, value] = option
            && name.eq_ignore_ascii_case(b"MATCH")
        {
            pattern = Some((*value).clone());
        }
    }
    let fits = |key: &Bytes| pattern.as_ref().is_none_or(|pattern| matches(pattern, key));
    let keys = database.all().filter(|(key, _)| fits(key));
    let keys = keys.map(|(key, _)| Reply::Bulk(key.clone())).collect();
    Ok(Reply::Array(vec![Reply::text("0"), Reply::Array(keys)]))
}

/// Matches a pattern of which only `*`, `?` and the escape `\` are special.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => matches(rest, text) || (!text.is_empty() && matches(pattern, &text[1..])),
        ([b'?', rest @ ..], [_, text @ ..]) => matches(rest, text),
        ([b'\\', byte, rest @ ..] | [byte, rest @ ..], [first, text @ ..]) if byte == first => {
            matches(rest, text)
        }
        _ => false,
    }
}

fn info(database: &Database, sections: &[Bytes]) -> Reply {
    let process = &database.process;
    let role = if database.refusal == Some(WriteRefusal::ReadOnly) {
        "slave"
    } else {
        "master"
    };
    let all = [
        (
            "server",
            format!(
                "# Server\r\nredis_version:7.2.4\r\nredis_mode:standalone\r\nrun_id:{}\r\ntcp_port:6379\r\n",
                process.run_id
            ),
        ),
        (
            "memory",
            "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n".to_owned(),
        ),
        (
            "persistence",
            "# Persistence\r\nloading:0\r\naof_enabled:0\r\n".to_owned(),
        ),
        (
            "stats",
            "# Stats\r\nsync_full:0\r\nsync_partial_ok:0\r\nsync_partial_err:0\r\nevicted_keys:0\r\n"
                .to_owned(),
        ),
        (
            "replication",
            format!(
                "# Replication\r\nrole:{role}\r\nconnected_slaves:0\r\nmaster_failover_state:no-failover\r\n\
                 master_replid:{}\r\nmaster_replid2:{:040}\r\nmaster_repl_offset:0\r\nsecond_repl_offset:-1\r\n\
                 repl_backlog_active:0\r\n",
                process.replication_id, 0
            ),
        ),
        ("cluster", "# Cluster\r\ncluster_enabled:0\r\n".to_owned()),
    ];
    let wanted = |name: &str| {
        sections.is_empty()
            || sections
                .iter()
                .any(|section| section.eq_ignore_ascii_case(name.as_bytes()))
    };
    let shown: Vec<String> = all
        .into_iter()
        .filter(|(name, _)| wanted(name))
        .map(|(_, text)| text)
        .collect();
    Reply::Bulk(shown.join("\r\n").into_bytes())
}
