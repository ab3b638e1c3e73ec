//! Records the locks that one life of an operator claims to hold: by `GET /locks` in a loop, and by its log.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redlock::clock;
use redlock::lease::BootInstant;
use serde_json::Value;

use crate::claims::Claim;
use crate::common::http;
use crate::wall::Wall;

const EVERY: Duration = Duration::from_millis(20);

/// One lease as the answers showed it.
#[derive(Clone, Copy, Debug)]
struct ReportedLease {
    /// The time at which the first answer had arrived: the operator held the lease at this time.
    from: BootInstant,
    /// The time at which the last answer was requested.
    to: BootInstant,
    /// The latest `valid_until` of all answers.
    until: BootInstant,
}

#[derive(Debug, Default)]
pub struct Answers {
    leases: BTreeMap<(String, u64), ReportedLease>,
    /// Lock and token of the last answer, however old it is.
    pub latest: Vec<(String, u64)>,
    pub latest_at: BootInstant,
}

#[derive(Debug)]
pub struct LockPoller {
    pub answers: Arc<Mutex<Answers>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LockPoller {
    pub fn start(port: u16) -> Self {
        let (answers, stop) = (Arc::<Mutex<Answers>>::default(), Arc::<AtomicBool>::default());
        let thread = {
            let (answers, stop) = (Arc::clone(&answers), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let asked = clock::now();
                    // The process starts, is frozen or has ended, which is not an error of the test.
                    if let Ok((200, body)) = http::get(port, "/locks") {
                        answers.lock().unwrap().answered(&body, asked, clock::now());
                    }
                    thread::sleep(EVERY);
                }
            })
        };
        Self {
            answers,
            stop,
            thread: Some(thread),
        }
    }

    /// Returns the claims of the process, from its answers and its log. Called after the process has ended.
    pub fn claims(&mut self, who: &str, log: &[String], wall: &Wall) -> Vec<Claim> {
        self.end();
        let answers = self.answers.lock().unwrap();
        answers.claims(who, log, wall)
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for LockPoller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Answers {
    fn answered(&mut self, body: &str, asked: BootInstant, received: BootInstant) {
        // The answer is incomplete if the process was killed while it answered.
        let Ok(body) = serde_json::from_str::<Value>(body) else {
            return;
        };
        self.latest.clear();
        self.latest_at = received;
        for lock in body["locks"].as_array().into_iter().flatten() {
            let left = lock["validForMilliseconds"].as_u64().unwrap_or(0);
            if lock["role"] != "Active" || left == 0 {
                continue;
            }
            let name = lock["lockName"].as_str().unwrap().to_owned();
            let token = lock["fencingToken"].as_u64().unwrap();
            self.latest.push((name.clone(), token));
            let lease = self.leases.entry((name, token)).or_insert(ReportedLease {
                from: received,
                to: asked,
                until: asked,
            });
            lease.to = asked;
            lease.until = lease.until.max(asked + Duration::from_millis(left));
        }
    }

    /// A lease begins with its log line, which is earlier than any answer. It ends with the log line about its end,
    /// which precedes the release, or with `valid_until`: a process that is frozen or killed logs nothing.
    fn claims(&self, who: &str, log: &[String], wall: &Wall) -> Vec<Claim> {
        let (mut begun, mut ended) = (BTreeMap::new(), BTreeMap::new());
        for line in log.iter().filter_map(|line| Line::parse(line)) {
            let (earliest, latest) = wall.moment(line.at);
            let key = (line.lock, line.token);
            match &*line.message {
                "lease acquired" => begun.entry(key).or_insert(latest),
                "lease lost" | "lease given up" => ended.entry(key).or_insert(earliest),
                _ => continue,
            };
        }
        let mut claims = Vec::new();
        for (key, lease) in &self.leases {
            let reported_end = ended.get(key).copied().unwrap_or(BootInstant::NEVER);
            let from = begun
                .remove(key)
                .map_or(lease.from, |begun| begun.min(lease.from));
            claims.push(claim(
                who,
                key,
                from,
                lease.to.max(lease.until.min(reported_end)).max(from),
            ));
        }
        // A lease that was too short for an answer still counts with its token.
        claims.extend(begun.iter().map(|(key, from)| claim(who, key, *from, *from)));
        claims
    }
}

fn claim(who: &str, (lock, token): &(String, u64), from: BootInstant, to: BootInstant) -> Claim {
    Claim {
        lock: lock.clone(),
        who: who.to_owned(),
        token: *token,
        from,
        to,
    }
}

/// A line of the log about a lease.
struct Line {
    at: Duration,
    message: String,
    lock: String,
    token: u64,
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| line.get(name)?.as_str().map(str::to_owned);
        let at: jiff::Timestamp = text("timestamp")?.parse().ok()?;
        Some(Self {
            at: Duration::from_nanos(u64::try_from(at.as_nanosecond()).ok()?),
            message: text("message")?,
            lock: text("lock")?,
            token: line.get("token")?.as_u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> BootInstant {
        BootInstant::default() + Duration::from_millis(milliseconds)
    }

    fn answer(left: u64) -> String {
        format!(
            r#"{{"locks":[{{"lockName":"c/l","role":"Active","fencingToken":7,"validForMilliseconds":{left}}},
            {{"lockName":"c/m","role":"Standby","fencingToken":9,"validForMilliseconds":0}}]}}"#
        )
    }

    /// Returns a lease that the log shows as acquired, with two answers: the second one is valid until 3,020.
    fn answers() -> Answers {
        let mut answers = Answers::default();
        answers.answered(&answer(2_900), at(100), at(103));
        answers.answered(&answer(2_900), at(120), at(122));
        answers.answered(r#"{"locks": [{"lockN"#, at(140), at(141));
        answers
    }

    /// Returns a wall clock that is a second ahead.
    fn wall() -> Wall {
        Wall::fixed(Duration::from_secs(1))
    }

    const ACQUIRED: &str =
        r#"{"timestamp":"1970-01-01T00:00:01.090Z","message":"lease acquired","lock":"c/l","token":7}"#;

    fn ends(log: &[&str]) -> (BootInstant, BootInstant) {
        let log: Vec<String> = log.iter().map(|line| (*line).to_owned()).collect();
        let claims = answers().claims("op", &log, &wall());
        let [claim] = &claims[..] else {
            panic!("one claim: {claims:?}");
        };
        assert_eq!((&*claim.lock, claim.token), ("c/l", 7));
        (claim.from, claim.to)
    }

    #[test]
    fn silent_process_claims_until_the_end_of_its_lease() {
        assert_eq!(ends(&[ACQUIRED, "thread panicked"]), (at(90), at(3_020)));
        assert_eq!(ends(&[]), (at(103), at(3_020)));
    }

    #[test]
    fn process_that_reports_the_loss_claims_no_longer() {
        let lost = |second: &str| {
            format!(
                r#"{{"timestamp":"1970-01-01T00:00:{second}Z","message":"lease lost","lock":"c/l","token":7}}"#
            )
        };
        assert_eq!(ends(&[ACQUIRED, &lost("01.500")]), (at(90), at(500)));
        // The process was frozen, and logs the loss when it continues.
        assert_eq!(ends(&[ACQUIRED, &lost("09.000")]), (at(90), at(3_020)));
    }

    #[test]
    fn lease_without_an_answer_has_a_token() {
        let log = [ACQUIRED.replace(":7}", ":8}")];
        let claims = Answers::default().claims("op", &log, &wall());
        assert_eq!(claims, [claim("op", &("c/l".into(), 8), at(90), at(90))]);
    }
}
