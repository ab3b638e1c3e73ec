//! The candidates of the elections: controllers of `tests/client-go`, which record when they lead, and schedulers, whose log
//! shows it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use redlock::clock;
use redlock::lease::BootInstant;
use serde_json::Value;

use super::side::Election;
use crate::fixture::{Scheduler, go_program};
use crate::world::World;

/// The settings of the controllers: a fifth of the defaults of client-go, and a quarter.
const SETTINGS: [&str; 3] = ["-lease-duration=3s", "-renew-deadline=2s", "-retry-period=500ms"];
/// The same for a scheduler.
pub const SCHEDULER_SETTINGS: [&str; 3] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
];
/// The longest gap between two records that the stop time of 6 s covers. A leader writes a record every 2 ms, and may
/// lead for 5.5 s after its last renewal.
const STANDSTILL: Duration = Duration::from_millis(500);
/// The renew deadline and the retry period.
const NOTICE: Duration = Duration::from_millis(2_500);

/// Builds the controller with a version of client-go, by its module file.
fn program(modules: &'static str) -> &'static Path {
    static PROGRAMS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(|| {
        ["go.mod", "go-0.26.mod"].map(|modules| {
            let name = Path::new(modules).with_extension("client-go");
            go_program("tests/client-go", modules, &name.to_string_lossy())
        })
    });
    &programs[usize::from(modules != "go.mod")]
}

/// A period in which a candidate led, by the boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    pub first: BootInstant,
    pub last: BootInstant,
}

/// A replica of the controller.
pub struct Controller {
    child: Child,
    records: Mutex<Records>,
}

/// The records of a controller that were read so far.
struct Records {
    file: File,
    /// The last line is incomplete until more is read.
    rest: String,
    terms: BTreeMap<u32, Led>,
}

/// One term by its records so far.
struct Led {
    term: Term,
    latest: BootInstant,
    /// The time from which a record extends the term.
    counts: BootInstant,
}

impl Led {
    const fn of(at: BootInstant) -> Self {
        Self {
            term: Term { first: at, last: at },
            latest: at,
            counts: at,
        }
    }

    /// Adds a record. client-go detects the loss of its Lease only `NOTICE` after a standstill of the whole process, which
    /// no stop time covers; a later record shows that the Lease was renewed.
    fn add(&mut self, at: BootInstant) {
        if at.since(self.latest) > STANDSTILL {
            self.counts = at + NOTICE;
        }
        self.latest = at;
        if at >= self.counts {
            self.term.last = at;
        }
    }
}

impl Records {
    fn read(&mut self) -> Vec<Term> {
        self.file.read_to_string(&mut self.rest).unwrap();
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        for line in self.rest.drain(..whole).as_str().lines() {
            let (term, at) = line.split_once(' ').unwrap();
            let at = BootInstant::from_nanos(at.parse().unwrap());
            let led = self.terms.entry(term.parse().unwrap());
            led.or_insert_with(|| Led::of(at)).add(at);
        }
        self.terms.values().map(|led| led.term).collect()
    }
}

impl Controller {
    pub fn start(name: &str, world: &World, modules: &'static str, folder: &Path) -> Self {
        let records = folder.join(name);
        let child = Command::new(program(modules))
            .args(SETTINGS)
            .arg("-release-on-cancel")
            .args([
                "-namespace",
                world.namespace.name(),
                "-identity",
                name,
                "-kubeconfig",
            ])
            .arg(world.plane.kubeconfig_admin())
            .stdin(Stdio::null())
            .stdout(File::create(&records).unwrap())
            .stderr(File::create(folder.join(format!("{name}.log"))).unwrap())
            .spawn()
            .unwrap();
        let records = Mutex::new(Records {
            file: File::open(&records).unwrap(),
            rest: String::new(),
            terms: BTreeMap::new(),
        });
        Self { child, records }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub enum Process {
    Controller(Controller),
    /// A scheduler that ends is started again.
    Scheduler(Scheduler),
}

pub struct Candidate {
    pub name: String,
    pub process: Process,
}

impl Candidate {
    pub fn election(&self) -> Election {
        match self.process {
            Process::Controller(_) => Election::Controller,
            Process::Scheduler(_) => Election::Scheduler,
        }
    }

    /// Returns the periods in which this candidate led.
    pub fn led(&self) -> Vec<Term> {
        match &self.process {
            Process::Controller(controller) => controller.records.lock().unwrap().read(),
            Process::Scheduler(scheduler) => terms(&scheduler.log(), clock::now(), booted()),
        }
    }

    /// Ends the candidate with SIGTERM, on which it releases the Lease. Returns whether it is gone for good.
    pub fn terminate(&mut self) -> bool {
        match &mut self.process {
            Process::Controller(controller) => {
                let pid = Pid::from_raw(i32::try_from(controller.child.id()).unwrap());
                signal::kill(pid, Signal::SIGTERM).unwrap();
                controller.child.wait().unwrap();
                true
            }
            Process::Scheduler(scheduler) => {
                scheduler.terminate();
                false
            }
        }
    }
}

/// Returns the wall-clock time at boot. It is read once, so that the same line always has the same time.
fn booted() -> Duration {
    static BOOTED: OnceLock<Duration> = OnceLock::new();
    *BOOTED.get_or_init(|| clock::unix_time() - clock::now().since(BootInstant::from_nanos(0)))
}

/// Returns the terms of a scheduler from its log, with the wall clock of its lines converted to the boot
/// clock. A term ends when the process reports the loss just before it exits, or, if it was killed, when the
/// next one starts.
fn terms(log: &str, now: BootInstant, booted: Duration) -> Vec<Term> {
    let (mut terms, mut began) = (Vec::new(), None);
    for line in log.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let (Some(text), Some(milliseconds)) = (line["msg"].as_str(), line["ts"].as_f64()) else {
            continue;
        };
        let at = Duration::from_secs_f64(milliseconds / 1e3);
        let at = BootInstant::from_nanos(0) + at.saturating_sub(booted);
        let ends = [
            "Leaderelection lost",
            "Requested to terminate",
            "Starting Kubernetes Scheduler",
        ];
        if text
            .to_ascii_lowercase()
            .starts_with("successfully acquired lease")
        {
            began = Some(at);
        } else if ends.iter().any(|end| text.starts_with(end)) {
            terms.extend(began.take().map(|first| Term { first, last: at }));
        }
    }
    terms.extend(began.map(|first| Term { first, last: now }));
    terms
}

#[test]
fn records_after_a_standstill_extend_a_term_once_the_lease_must_be_renewed() {
    let at = |ms: u64| BootInstant::from_nanos(ms * 1_000_000);
    let mut led = Led::of(at(0));
    for (record, last) in [(500, 500), (1_001, 500), (1_400, 500), (1_900, 500)] {
        led.add(at(record));
        assert_eq!(led.term.last, at(last), "{record}");
    }
    for record in (2_400..=3_400).step_by(500) {
        led.add(at(record));
        assert_eq!(led.term.last, at(500), "{record}");
    }
    led.add(at(3_501));
    assert_eq!(led.term.last, at(3_501));
}

#[test]
fn terms_of_a_scheduler_follow_from_its_log() {
    let log = r#"{"ts":1000.5,"msg":"Starting Kubernetes Scheduler"}
{"ts":2000.0,"msg":"Successfully acquired lease","lock":"a/kube-scheduler"}
{"ts":4000.0,"msg":"Leaderelection lost"}
no JSON
{"ts":5000.0,"msg":"Starting Kubernetes Scheduler"}
{"ts":6000.0,"msg":"Successfully acquired lease","lock":"a/kube-scheduler"}
{"ts":7000.0,"msg":"Starting Kubernetes Scheduler"}
{"ts":8000.0,"msg":"Successfully acquired lease","lock":"a/kube-scheduler"}
{"ts":85"#;
    let at = |ms: u64| BootInstant::from_nanos(ms * 1_000_000);
    let found = terms(log, at(8_000), Duration::from_secs(1));
    let found: Vec<_> = found.iter().map(|term| (term.first, term.last)).collect();
    assert_eq!(
        found,
        [(1_000, 3_000), (5_000, 6_000), (7_000, 8_000)].map(|(first, last)| (at(first), at(last)))
    );
}
