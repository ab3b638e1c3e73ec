//! The resource of `examples/fenced-resource`, which refuses smaller tokens.

use redis::Script;

const SCRIPT: &str = include_str!("../../examples/fenced-resource/append.lua");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    Refused,
}

/// One ledger of the resource.
pub struct Resource {
    connection: redis::Connection,
    script: Script,
    ledger: String,
}

impl Resource {
    pub fn open(url: &str, ledger: &str) -> Self {
        Self {
            connection: redis::Client::open(url).unwrap().get_connection().unwrap(),
            script: Script::new(SCRIPT),
            ledger: ledger.to_owned(),
        }
    }

    pub fn append(&mut self, token: u64) -> Answer {
        let mut call = self.script.key(&self.ledger);
        match call.arg(token).arg("a write").invoke::<u64>(&mut self.connection) {
            Ok(_) => Answer::Accepted,
            Err(error) if error.code() == Some("FENCED") => Answer::Refused,
            Err(error) => panic!("the resource: {error}"),
        }
    }

    /// Returns the tokens of all accepted writes, in order.
    pub fn tokens(&mut self) -> Vec<u64> {
        let lines: Vec<String> = redis::cmd("LRANGE")
            .arg(&self.ledger)
            .arg(0)
            .arg(-1)
            .query(&mut self.connection)
            .unwrap();
        let token = |line: &String| line.split(' ').next().unwrap().parse().unwrap();
        lines.iter().map(token).collect()
    }
}
