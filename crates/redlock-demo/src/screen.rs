//! What people see while the demo runs: headings and lines that stay, and below them a table that is drawn anew.
//!
//! Without a terminal there is no table, only the lines. Nobody reads any more: the demo goes on, and its exit code tells.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::observer::{MasterView, Record};
use redlock_core::BootInstant;

/// Often enough to look alive, seldom enough to be read.
const EVERY: Duration = Duration::from_millis(200);

/// What every terminal has.
const WIDTH: usize = 79;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Lines and a table on stdout.
    Live,
    /// Lines on stdout.
    Plain,
    /// Lines on stderr: stdout is for the one object at the end.
    Aside,
}

#[derive(Debug)]
pub struct Screen {
    mode: Mode,
    drawn_at: BootInstant,
    /// Lines of the table that stands there now.
    drawn: usize,
}

impl Screen {
    /// For people: on stdout.
    pub fn for_people() -> Self {
        Self::new(if io::stdout().is_terminal() {
            Mode::Live
        } else {
            Mode::Plain
        })
    }

    /// For a program: stdout stays empty.
    pub fn aside() -> Self {
        Self::new(Mode::Aside)
    }

    fn new(mode: Mode) -> Self {
        Self {
            mode,
            drawn_at: BootInstant::default(),
            drawn: 0,
        }
    }

    pub fn heading(&mut self, text: &str) {
        let line = match self.mode {
            Mode::Live => format!("\n\x1b[1m{text}\x1b[0m\n"),
            Mode::Plain | Mode::Aside => format!("\n{text}\n"),
        };
        self.put(&line);
    }

    pub fn say(&mut self, text: &str) {
        self.put(&format!("  {text}\n"));
    }

    /// Removes the table; what was said stays.
    pub fn finish(&mut self) {
        self.put("");
    }

    /// On stderr, whoever reads stdout.
    pub fn complain(&mut self, text: &str) {
        self.finish();
        let _ = io::stderr().write_all(text.as_bytes());
    }

    fn put(&mut self, text: &str) {
        let text = format!("{}{text}", self.wipe());
        let _ = match self.mode {
            Mode::Live | Mode::Plain => io::stdout()
                .write_all(text.as_bytes())
                .and_then(|()| io::stdout().flush()),
            Mode::Aside => io::stderr().write_all(text.as_bytes()),
        };
    }

    /// Back to the first line of the table, and everything below it away.
    fn wipe(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        }
    }

    pub fn draw(&mut self, record: &Record, masters: &[String], now: BootInstant) {
        if self.mode != Mode::Live || now.since(self.drawn_at) < EVERY {
            return;
        }
        let table = table(record, masters, now);
        self.put(&table);
        self.drawn = table.lines().count();
        self.drawn_at = now;
    }
}

fn table(record: &Record, masters: &[String], now: BootInstant) -> String {
    let mut text = String::from("\n");
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "  {:<28} {:<12} {:>16} {:>9}",
        "LOCK", "ACTIVE", "TOKEN", "VALID FOR"
    );
    for lock in &record.locks {
        let _ = match record.claims.holder(lock, now) {
            Some(claim) => writeln!(
                text,
                "  {lock:<28} {:<12} {:>16} {:>7.1} s",
                claim.who.name,
                claim.token,
                claim.end().left(now).as_secs_f64()
            ),
            None => writeln!(text, "  {lock:<28} {:<12}", "nobody"),
        };
    }
    for replica in replicas(record, now) {
        let _ = writeln!(text, "  {replica}");
    }
    let masters: Vec<String> = masters
        .iter()
        .zip(&record.masters)
        .map(|(name, view)| format!("{name} {}", state(view)))
        .collect();
    let _ = writeln!(text, "  {}", masters.join("   "));
    // A line that wraps would be two to wipe.
    let narrow = |line: &str| line.chars().take(WIDTH).chain(['\n']).collect::<String>();
    text.lines().map(narrow).collect()
}

/// The last life of each replica.
fn replicas(record: &Record, now: BootInstant) -> Vec<String> {
    let mut names: Vec<&str> = record.replicas.iter().map(|r| r.who.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let last = |name: &&str| record.replicas.iter().rev().find(|r| r.who.name == *name);
    names
        .iter()
        .filter_map(last)
        .map(|replica| {
            let name = &replica.who.name;
            match (replica.answers, &replica.quorum) {
                (false, _) => format!("{name} silent"),
                (true, quorum) => format!(
                    "{name} holds {}, quorum {}",
                    record.held_by(&replica.who, now).len(),
                    quorum.as_deref().unwrap_or("?")
                ),
            }
        })
        .collect()
}

fn state(view: &MasterView) -> &'static str {
    match (view.answers, view.sealed, view.probed) {
        (false, _, _) => "silent",
        (true, true, _) => "votes",
        (true, false, true) => "in quarantine",
        (true, false, false) => "not sealed",
    }
}
