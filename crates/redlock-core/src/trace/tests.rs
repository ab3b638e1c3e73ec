use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    Admission, ClusterId, Command, ConnectionId, Engine, HolderIdentity, Keyspace, LeaseAttempt, LeaseStem,
    Machine, Nonce, Output, QuorumSize, Request, RequestId, Timings, Transmit,
    eligibility::fit,
    reply::{Code, Value},
};

fn at(ms: u64) -> BootInstant {
    BootInstant::from_nanos(ms * 1_000_000)
}

fn cluster() -> ClusterId {
    ClusterId::new("a", "b").unwrap()
}

fn config() -> Config {
    Config {
        size: QuorumSize::new(3).unwrap(),
        fingerprint: "f".into(),
        quorum: fit().quorum,
        keys: Keyspace::new("p"),
        cluster: cluster(),
        longest_lease: Duration::from_secs(60),
        acquire_limit: Duration::from_secs(2),
        command_timeout: Duration::from_millis(100),
    }
}

/// A recorded engine and the lines written so far.
struct Recording {
    engine: Recorded<Engine>,
    lines: Arc<Mutex<Vec<String>>>,
    trace: Trace,
}

impl Recording {
    /// Starts a recording with three masters that were connected and polled.
    fn start() -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let trace = Trace::new(move |line| sink.lock().unwrap().push(line));
        let engine = Recorded::<Engine>::new(config(), Some(&trace));
        let mut recording = Self { engine, lines, trace };
        (0..3).for_each(|master| recording.connect(master, 1));
        recording.transmits(0);
        recording
    }

    fn connect(&mut self, master: usize, connection: u32) {
        let connection = ConnectionId(connection);
        let engine = &mut self.engine;
        engine.handle(Input::Connected { master, connection }, at(0));
        let run_id = format!("a{master}");
        let facts = MasterFacts {
            seal: run_id.clone(),
            run_id,
            ..fit()
        };
        engine.handle(
            Input::Polled {
                master,
                connection,
                facts,
            },
            at(0),
        );
    }

    fn transmits(&mut self, ms: u64) -> Vec<Transmit> {
        let mut transmits = Vec::new();
        while let Some(output) = self.engine.poll(at(ms)) {
            if let Output::Transmit(transmit) = output {
                transmits.push(transmit);
            }
        }
        transmits
    }

    fn request(&mut self, ms: u64, command: Command) -> Vec<Transmit> {
        let lock = Keyspace::new("p").lock(&LockName::any("l").unwrap());
        let id = RequestId(7);
        self.engine
            .handle(Input::Request(Request { id, lock, command }), at(ms));
        self.transmits(ms)
    }

    fn reply(&mut self, ms: u64, transmit: &Transmit, items: Vec<Value>) {
        let transmit = transmit.id;
        let reply = Reply {
            code: Code::Ok,
            time: ms * 1_000,
            counter: 9,
            items,
        };
        let result = Ok(reply);
        self.engine.handle(Input::Reply { transmit, result }, at(ms));
    }

    /// Records a known clock, an acquire that all masters grant, and a release after a reconnect to one master: whether
    /// the release is repeated there depends on the counts in the attempt.
    fn live(&mut self) {
        for master in 0..3 {
            let timeout = Duration::from_millis(100);
            let call = self
                .engine
                .begin_call(master, Admission::Connected, timeout, at(1));
            let reply = Reply {
                code: Code::Ok,
                time: 1_000,
                counter: 9,
                items: vec![Value::Text(vec![0, 200, 255])],
            };
            let _ = self.engine.finish_call(master, &call.unwrap(), Ok(reply), at(2));
        }
        let stem = LeaseStem::new(
            &cluster(),
            &HolderIdentity::parse("me").unwrap(),
            Nonce(u128::MAX),
        );
        let attempt = Arc::new(LeaseAttempt::new(stem, Duration::from_secs(3)));
        let acquire = Command::Acquire {
            attempt: attempt.clone(),
            lease_duration: Duration::from_secs(3),
        };
        for transmit in self.request(10, acquire) {
            let numbers = [9, 0, 0].map(Value::Int);
            let granted = [&["granted".into()], &numbers[..], &["0|0".into()]].concat();
            self.reply(12, &transmit, vec![Value::Array(granted)]);
        }
        self.transmits(12);
        self.engine.handle(Input::Disconnected { master: 1 }, at(20));
        self.connect(1, 2);
        for transmit in self.request(30, Command::Release { attempt }) {
            self.reply(31, &transmit, vec![Value::Int(1)]);
        }
        self.transmits(31);
        self.engine.handle(Input::Timeout, at(300));
        self.transmits(300);
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

fn replay(lines: &[String]) -> Result<Summary, ReplayError> {
    let mut replay = Replay::default();
    lines.iter().try_for_each(|line| replay.take(line))?;
    Ok(replay.summary())
}

fn divergence(lines: &[String]) -> Divergence {
    match replay(lines) {
        Err(ReplayError::Diverged(divergence)) => *divergence,
        other => panic!("no divergence: {other:?}"),
    }
}

fn recorded() -> Vec<String> {
    let mut recording = Recording::start();
    recording.live();
    recording.lines()
}

#[test]
fn an_engine_and_a_machine_return_the_same_in_a_replay() {
    let mut recording = Recording::start();
    recording.live();
    let terms = Terms::of_own_work(cluster(), Timings::derive(Duration::ZERO));
    let lock = LockName::any("l").unwrap();
    let mut machine = Recorded::<Machine>::new(&lock, terms, 2, Some(&recording.trace));
    assert!(!machine.handle(at(1), 7, Event::TimerFired).is_empty());
    drop(machine);
    let lines = recording.lines();
    let summary = replay(&lines).unwrap();
    assert_eq!((summary.engines, summary.machines), (1, 1));
    assert!(summary.inputs > 20 && summary.outputs > 15, "{summary:?}");
    let all = lines.join("\n");
    assert!(
        lines.last().unwrap().contains("\"End\""),
        "the machine was dropped"
    );
    for text in ["grant", "release", "Won", "undo", "StartRound"] {
        assert!(all.contains(text), "{text} is missing: {all}");
    }
}

#[test]
fn a_changed_reply_is_a_divergence_at_the_first_output_that_depends_on_it() {
    let mut lines = recorded();
    let reply = lines.iter().position(|line| line.contains("\"granted\""));
    let reply = reply.unwrap();
    lines[reply] = lines[reply].replace("{\"Int\":9}", "{\"Int\":8}");
    let found = divergence(&lines);
    // No divergence before the reply; lines count from one.
    assert!(found.line > reply as u64 + 1, "{found}");
    assert_ne!(found.recorded, found.replayed);
    let line = &lines[usize::try_from(found.line).unwrap() - 1];
    assert!(line.contains("Poll"), "{line}");
}

#[test]
fn an_engine_with_another_acquire_limit_is_found() {
    let mut lines = recorded();
    let limit = "\"acquire_limit\":{\"secs\":2,\"nanos\":0}";
    assert!(lines[1].contains(limit), "{}", lines[1]);
    lines[1] = lines[1].replace(limit, "\"acquire_limit\":{\"secs\":0,\"nanos\":50000000}");
    let found = divergence(&lines);
    assert!(found.recorded.contains("Transmit"), "{found}");
}

#[test]
fn a_line_that_is_no_record_is_named() {
    let lines = recorded();
    let with = |place: usize, line: &str| {
        let mut lines = lines.clone();
        lines[place] = line.to_owned();
        replay(&lines).unwrap_err().to_string()
    };
    let other = with(0, "{\"format\":1,\"version\":\"9.9.9\"}");
    assert!(
        other.contains("replay the trace with version 9.9.9 (format 1)"),
        "{other}"
    );
    for (line, reason) in [
        ("{\"now\":1,", "line 3"),
        ("{\"now\":1,\"of\":7,\"step\":\"Poll\"}", "the engine is unknown"),
        (
            "{\"now\":1,\"of\":0,\"step\":{\"Handle\":{\"Disconnected\":{\"master\":3}}}}",
            "the quorum has fewer masters",
        ),
    ] {
        let error = with(2, line);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn without_a_trace_nothing_is_written() {
    let mut engine = Recorded::<Engine>::new(config(), None);
    engine.handle(Input::Timeout, at(1));
    assert!(engine.poll(at(1)).is_none());
}

/// Returns the recorded results of all calls of this step.
fn results(lines: &[String], step: &str) -> Vec<String> {
    let records = lines[1..].iter().map(|line| serde_json::from_str(line).unwrap());
    let of = records.filter(|record: &Record| format!("{:?}", record.step).starts_with(step));
    of.filter_map(|record| record.out).collect()
}

#[test]
fn result_of_each_call_is_recorded() {
    let mut recording = Recording::start();
    recording.live();
    let engine = &mut recording.engine;
    let timeout = Duration::from_millis(100);
    let call = engine
        .begin_call(0, Admission::Connected, timeout, at(400))
        .unwrap();
    let retired = "retired: m0 is elsewhere";
    let mut facts = MasterFacts {
        fingerprint: retired.into(),
        ..MasterFacts::default()
    };
    engine.recall_retirement(0, &call, &mut facts);
    let _ = engine.finish_call(0, &call, Err(Unknown::TimedOut(100)), at(500));
    let drawn = QuorumId::parse(&"c".repeat(32)).unwrap();
    engine.set_drawn(drawn);
    let _ = engine.remember(FencingToken(77), Duration::from_secs(1));
    let lines = recording.lines();
    for (step, part) in [
        ("BeginCall", "Call {"),
        ("FinishCall", "TimedOut(100)"),
        ("RecallRetirement", retired),
        ("SetDrawn", &"c".repeat(32)),
        ("Remember", "Taken"),
        // Each argument of the script, including the end of the call and the duration of the lease.
        ("Poll", " 108920 \"f quorum="),
        ("Poll", " 3000 \"l\""),
        // The next timeout of an idle engine.
        ("Poll", "- "),
    ] {
        let found = results(&lines, step);
        assert!(found.iter().any(|out| out.contains(part)), "{step}: {found:?}");
    }
    replay(&lines).unwrap();
}

#[test]
fn polls_that_return_nothing_are_no_outputs() {
    let mut recording = Recording::start();
    let before = replay(&recording.lines()).unwrap();
    recording.transmits(1);
    let after = replay(&recording.lines()).unwrap();
    assert_eq!(after, before);
    let mut sum = before;
    sum += after;
    assert_eq!((sum.engines, sum.outputs), (2, 2 * before.outputs));
    assert_eq!((sum.machines, sum.inputs), (0, 2 * before.inputs));
    assert!(before.inputs > 0 && before.outputs > 0);
}
