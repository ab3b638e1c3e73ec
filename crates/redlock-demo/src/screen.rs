//! Prints the progress of the demo: headings and lines that stay, and below them a table that is redrawn.
//!
//! Without a terminal there is no table, only the lines. A closed stdout does not stop the demo; its exit code reports
//! the result.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::observer::{MasterView, Record};
use redlock_core::BootInstant;

/// The time between two drawings: short enough to appear live, long enough to be readable.
const EVERY: Duration = Duration::from_millis(200);

/// The width that every terminal has.
const WIDTH: usize = 79;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Lines and a table on stdout.
    Live,
    /// Lines on stdout.
    Plain,
    /// Lines on stderr: stdout is reserved for the JSON object at the end.
    Aside,
}

#[derive(Debug)]
pub struct Screen {
    mode: Mode,
    drawn_at: BootInstant,
    /// The number of lines of the table on the screen.
    drawn: usize,
}

impl Screen {
    /// Returns a screen for people, on stdout.
    pub fn for_people() -> Self {
        Self::new(if io::stdout().is_terminal() {
            Mode::Live
        } else {
            Mode::Plain
        })
    }

    /// Returns a screen for programs; stdout stays empty.
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

    pub fn print(&mut self, text: &str) {
        self.put(&format!("  {text}\n"));
    }

    /// Removes the table; the lines above it stay.
    pub fn finish(&mut self) {
        self.put("");
    }

    /// Writes to stderr, in every mode.
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

    /// Moves the cursor to the first line of the table and clears everything below it.
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
    // A wrapped line would take two lines to clear.
    let narrow = |line: &str| line.chars().take(WIDTH).chain(['\n']).collect::<String>();
    text.lines().map(narrow).collect()
}

/// Shows the last life of each replica.
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
