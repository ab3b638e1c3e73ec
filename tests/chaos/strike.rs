//! Applies an act to the stage, and undoes it.

use nix::sys::signal::Signal;

use crate::kinds::Kind;
use crate::plan::{Act, Target};
use crate::process::{USER, send};
use crate::stage::{Stage, acl};
use redlock_testkit::Mode;

/// The way to undo an act. A killed process is started again without it.
#[derive(Clone, Debug)]
pub enum Undo {
    Nothing,
    Heal { process: usize, masters: Vec<usize> },
    Wake(i32),
    Resume(Vec<usize>),
    Start(usize),
    Policy(usize),
    User(usize),
}

/// Begins the act, and returns its object. `None` if no process holds the lock yet, or the fault failed.
pub fn begin(act: &Act, stage: &mut Stage) -> Option<(Undo, String)> {
    match &act.target {
        Target::Link { process, masters } => {
            let mode = match act.kind {
                Kind::Delay => Mode::Delay(act.delay),
                Kind::LoseRequests => Mode::LoseRequests,
                Kind::LoseReplies => Mode::LoseReplies,
                Kind::BlackHole => Mode::BlackHole,
                _ => Mode::Reset,
            };
            stage.set_network(*process, masters, mode);
            let undo = Undo::Heal {
                process: *process,
                masters: masters.clone(),
            };
            Some((undo, String::new()))
        }
        Target::HolderOf(lock) => {
            let holder = stage.holder(lock)?;
            let undo = process(act.kind, holder, stage)?;
            Some((undo, format!(" ({})", crate::cast::name(holder))))
        }
        Target::Masters(masters) => {
            let undos: Option<Vec<Undo>> = masters.iter().map(|m| master(act, *m, stage)).collect();
            let undo = match act.kind {
                Kind::FreezeMajority => Undo::Resume(masters.clone()),
                Kind::EmptyMajority => {
                    undos?;
                    stage.start_anew();
                    Undo::Nothing
                }
                _ => undos?.pop()?,
            };
            Some((undo, String::new()))
        }
    }
}

fn process(kind: Kind, holder: usize, stage: &mut Stage) -> Option<Undo> {
    let wrapper = stage.processes[holder].pid()?;
    let kill = |pid| {
        send(pid, Signal::SIGKILL);
        Undo::Nothing
    };
    let freeze = |pid| {
        send(pid, Signal::SIGSTOP);
        Undo::Wake(pid)
    };
    // A wrapper is frozen only while its guardian runs: otherwise, no process could stop the command.
    let guarded = || stage.processes[holder].guarded();
    Some(match kind {
        Kind::StopOperator | Kind::StopRun => {
            send(wrapper, Signal::SIGTERM);
            Undo::Nothing
        }
        Kind::FreezeOperator => freeze(wrapper),
        Kind::FreezeWrapper => guarded().map(|_| freeze(wrapper))?,
        Kind::KillGuardian => guarded().map(|(guardian, _)| kill(guardian))?,
        Kind::KillCommand => guarded().map(|(_, command)| kill(command))?,
        Kind::FreezeCommand => guarded().map(|(_, command)| freeze(command))?,
        _ => {
            stage.bury(holder);
            Undo::Nothing
        }
    })
}

fn master(act: &Act, index: usize, stage: &Stage) -> Option<Undo> {
    let server = &stage.masters[index];
    let execute = |words: &[&str]| {
        stage
            .admin::<redis::Value>(index, words)
            .map(|_| Undo::Nothing)
            .ok()
    };
    match act.kind {
        Kind::FreezeMaster | Kind::FreezeMajority => {
            server.pause().unwrap();
            Some(Undo::Resume(vec![index]))
        }
        Kind::MasterDown => {
            server.kill();
            Some(Undo::Start(index))
        }
        Kind::RestartEmpty => {
            server.restart_empty().unwrap();
            Some(Undo::Nothing)
        }
        Kind::RestartAof => {
            server.restart().unwrap();
            Some(Undo::Nothing)
        }
        Kind::FlushAll | Kind::EmptyMajority => execute(&["FLUSHALL"]),
        Kind::DeleteMeta => execute(&["DEL", "redlock:meta"]),
        Kind::ScriptFlush => execute(&["SCRIPT", "FLUSH"]),
        Kind::EvictionPolicy => {
            execute(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).map(|_| Undo::Policy(index))
        }
        Kind::TakeRight => execute(&["ACL", "SETUSER", USER, "-evalsha"]).map(|_| Undo::User(index)),
        Kind::UserOff => {
            execute(&["ACL", "SETUSER", USER, "off"])?;
            execute(&["CLIENT", "KILL", "USER", USER]).map(|_| Undo::User(index))
        }
        _ => {
            // The pause ends by itself, and the master answers nothing before, so the command has its length.
            execute(&["CLIENT", "PAUSE", &act.lasts.as_millis().to_string()])
        }
    }
}

pub fn end(undo: Undo, stage: &mut Stage) {
    match undo {
        Undo::Nothing => {}
        Undo::Heal { process, masters } => stage.set_network(process, &masters, Mode::Pass),
        Undo::Wake(pid) => send(pid, Signal::SIGCONT),
        Undo::Resume(masters) => masters.iter().for_each(|m| stage.masters[*m].resume().unwrap()),
        Undo::Start(master) => stage.masters[master].restart().unwrap(),
        Undo::Policy(master) => {
            let words = ["CONFIG", "SET", "maxmemory-policy", "noeviction"];
            stage.admin::<()>(master, &words).unwrap();
        }
        Undo::User(master) => {
            let line = acl();
            let mut words = vec!["ACL", "SETUSER", USER, "reset"];
            words.extend(line.iter().map(String::as_str));
            stage.admin::<()>(master, &words).unwrap();
        }
    }
}
