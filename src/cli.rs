//! The command line: parses the arguments, runs one command, and turns its failure into a message and an exit code.
//! Contains no other logic.

mod agent;
mod break_lock;
mod called;
mod complete;
mod completion;
mod connection;
mod demo;
mod doctor;
mod drain;
mod empty;
mod exit;
mod fence;
mod hand_over;
mod init;
mod install;
mod man;
mod node_agent;
mod node_guardian;
mod operator;
mod place;
mod process;
mod replay;
mod reseal;
mod run;
mod session;
mod source;
mod status;
mod top;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};

pub use connection::{ConnectionArgs, QuorumArgs};
pub use exit::{Exit, Failure};
pub use place::{KubernetesArgs, PlaceArgs};

use self::{called::Called, source::FromVariable};
use crate::telemetry::logs::Flush;

/// Elects one active replica for every declared lock, with Redlock leases on independent Redis masters.
#[derive(Debug, Parser)]
#[command(name = "redlock", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Operator(Box<operator::OperatorArgs>),
    Run(Box<run::RunArgs>),
    Agent(Box<agent::AgentArgs>),
    NodeAgent(Box<node_agent::NodeAgentArgs>),
    NodeGuardian(node_guardian::NodeGuardianArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Doctor(doctor::DoctorArgs),
    Break(break_lock::BreakArgs),
    HandOver(hand_over::HandOverArgs),
    Drain(drain::DrainArgs),
    Fence(fence::FenceArgs),
    Init(init::InitArgs),
    Reseal(reseal::ResealArgs),
    Demo(demo::DemoArgs),
    Completion(completion::CompletionArgs),
    Man(man::ManArgs),
    Install(install::InstallArgs),
    #[command(hide = true)]
    Replay(replay::ReplayArgs),
    /// Print the custom resource definitions.
    #[command(after_help = "Example:\n  redlock crd | kubectl apply -f -")]
    Crd,
}

/// The same program with the command `run` alone. A wrapper stays in memory as long as its command runs, and the
/// descriptions of the arguments of all other commands would leave 1.5 MiB of code, relocations and texts there.
#[derive(Debug, Parser)]
#[command(name = "redlock", version, max_term_width = 100)]
struct RunAlone {
    #[command(subcommand)]
    command: Only,
}

#[derive(Debug, Subcommand)]
enum Only {
    Run(Box<run::RunArgs>),
}

impl From<Only> for Command {
    fn from(Only::Run(args): Only) -> Self {
        Self::Run(args)
    }
}

const RUN: &str = "run";

/// The hidden command by which kubectl requests completions of the words after it.
const COMPLETE: &str = "__complete";

/// Parses the arguments of this process and runs the command.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = crate::run::dispatch() {
        return code;
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let called = Called::by(words.first().map(OsString::as_os_str));
    if words.get(1).is_some_and(|word| word == COMPLETE) {
        return complete::run(called.command(Cli::command()), &words[2..]);
    }
    // The texts of a plugin name the other commands, so the plugin needs all of them.
    let command = if called == Called::Redlock && words.get(1).is_some_and(|word| word == RUN) {
        parse::<RunAlone>(words, called).map(|(cli, given)| (cli.command.into(), given))
    } else {
        parse::<Cli>(words, called).map(|(cli, given)| (cli.command, given))
    };
    let (command, given) = match command {
        Ok(command) => command,
        Err(e) => return exit::usage(&e),
    };
    let log = Flush::default();
    let result = replay::record().and_then(|()| run(command, called));
    redlock_client::trace::flush();
    // Writes the rest of the log before the message of a failure.
    drop(log);
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => failure.naming(&given).report(),
    }
}

/// Parses the arguments, and returns those that variables gave as well. Their description is dropped before the command runs.
fn parse<P: Parser>(words: Vec<OsString>, called: Called) -> Result<(P, Vec<FromVariable>), clap::Error> {
    let program = called.command(P::command());
    let empty::CommandWords { kept: words, removed } = empty::without_empty_flags(&program, words);
    empty::report(&removed);
    empty::report(&empty::empty_variables(source::subcommand(&program, &words)));
    let mut program = empty::without_empty_variables(program);
    let matches = match program.try_get_matches_from_mut(&words) {
        Ok(matches) => matches,
        Err(mut error) => {
            // With the variables that are empty, which the user may have to set.
            let mut known = called.command(P::command());
            known.build();
            source::name_variables(&mut error, &known, &words);
            return Err(error);
        }
    };
    let parsed = P::from_arg_matches(&matches).map_err(|e| e.format(&mut program))?;
    Ok((parsed, source::from_variables(&program, &matches)))
}

fn run(command: Command, called: Called) -> Result<Exit, Failure> {
    let program = || called.command(Cli::command());
    match command {
        Command::Crd => {
            let definitions =
                crate::api::crds_yaml().map_err(|e| Failure::new(Exit::Software, e.to_string()))?;
            session::print(&definitions)?;
            Ok(Exit::Ok)
        }
        Command::Completion(args) => completion::run(&args, program(), called),
        Command::Install(args) => install::run(&args),
        Command::Man(args) => man::run(&args, program()),
        Command::Replay(args) => replay::run(&args),
        Command::NodeGuardian(args) => node_guardian::run(args),
        Command::Fence(args) => fence::run(args),
        Command::Operator(args) => block_on(operator::run(*args))?,
        Command::Run(args) => block_on_this_thread(run::run(*args))?,
        Command::Agent(args) => block_on(agent::run(*args))?,
        Command::NodeAgent(args) => block_on(node_agent::run(*args))?,
        Command::Status(args) => block_on(status::run(args))?,
        Command::Top(args) => block_on(top::run(args))?,
        Command::Doctor(args) => block_on(doctor::run(args))?,
        Command::Break(args) => block_on(break_lock::run(args))?,
        Command::HandOver(args) => block_on(hand_over::run(args))?,
        Command::Drain(args) => block_on(drain::run(args))?,
        Command::Init(args) => block_on(init::run(args))?,
        Command::Reseal(args) => block_on(reseal::run(args))?,
        Command::Demo(args) => block_on(demo::run(args))?,
    }
}

/// Runs a command on its own runtime.
fn block_on<T>(command: impl Future<Output = T>) -> Result<T, Failure> {
    block_on_a(&mut tokio::runtime::Builder::new_multi_thread(), command)
}

/// Runs a command that does little and starts often: on its own runtime without further threads.
fn block_on_this_thread<T>(command: impl Future<Output = T>) -> Result<T, Failure> {
    block_on_a(&mut tokio::runtime::Builder::new_current_thread(), command)
}

fn block_on_a<T>(
    builder: &mut tokio::runtime::Builder,
    command: impl Future<Output = T>,
) -> Result<T, Failure> {
    // The whole process uses one TLS provider. A second call finds it installed, so its error is ignored.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Exit::Software, format!("starting the runtime: {e}")))?;
    let result = runtime.block_on(command);
    // Tasks that still run have no owner any more, so the process does not wait for them.
    runtime.shutdown_background();
    Ok(result)
}
