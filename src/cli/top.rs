//! `redlock top`.

use std::{
    io::{ErrorKind, IsTerminal, Write, stdout},
    time::Duration,
};

use clap::Args;
use terminal_size::{Height, Width, terminal_size};
use tokio::time;

use super::{
    Exit, Failure, PlaceArgs,
    place::ClusterNamed,
    process::signals,
    session,
    status::{exit_of, of_clusters},
};
use crate::{
    clock,
    inspect::{
        Session,
        cluster::Given,
        status::{self, Wanted},
        top::{Poll, Top, frame},
    },
    lease::LockName,
    masters::Agreement,
};

/// Follow the holder of each lock: the table of `redlock status`, refreshed in place, with the changes since the start.
///
/// Ends with Ctrl-C, or after --count tables. If the standard output is not a terminal, the tables follow each other. A value
/// that cannot be read is shown as unknown, and is read again. Exits as `redlock status` would after the last table.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  redlock top -n billing
  redlock top -A --context eu-1 --context us-1
  redlock top --interval 5s --count 12 -n billing nightly-report > minute.txt")]
pub(super) struct TopArgs {
    /// Locks to follow; all locks when none is named. Names of LeaderLocks with a kubeconfig, else names on the
    /// masters.
    #[arg(value_name = "LOCK", value_parser = session::lock)]
    locks: Vec<LockName>,
    /// The LeaderLocks of all namespaces.
    #[arg(
        short = 'A',
        long,
        conflicts_with_all = ["namespace", "locks", "masters", "config"],
        help_heading = "Kubernetes"
    )]
    all_namespaces: bool,
    /// Time between two refreshes.
    #[arg(long, value_name = "DURATION", value_parser = session::duration, default_value = "1s")]
    interval: Duration,
    /// Exit after this number of tables.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// The source of the tables.
enum Followed {
    Masters(Box<Session>),
    Clusters(Box<Asked>),
}

struct Asked {
    clusters: Vec<ClusterNamed>,
    given: Given,
    wanted: Wanted,
}

pub(super) async fn run(args: TopArgs) -> Result<Exit, Failure> {
    let followed = match args.place.clusters(args.all_namespaces)? {
        Some(clusters) => {
            let wanted = Wanted {
                names: args.locks.iter().map(ToString::to_string).collect(),
                all_namespaces: args.all_namespaces,
                quorum: args.place.kubernetes.quorum.clone(),
                registers: false,
            };
            let given = args.place.given()?;
            Followed::Clusters(Box::new(Asked {
                clusters,
                given,
                wanted,
            }))
        }
        None => {
            let session = session::open(&args.place.quorum, Agreement::AllFound).await?;
            Followed::Masters(Box::new(session))
        }
    };
    let mut signals = signals()?;
    let result = tokio::select! {
        result = follow(&args, &followed) => result,
        _ = signals.next() => Ok(Exit::Ok),
    };
    if let Followed::Masters(session) = followed {
        session.close().await;
    }
    result
}

async fn follow(args: &TopArgs, followed: &Followed) -> Result<Exit, Failure> {
    let screen = stdout().is_terminal().then(Screen::take);
    let (mut top, mut shown) = (Top::default(), 0);
    // A poll that takes longer than the interval delays the next one.
    let mut next = time::interval(args.interval);
    next.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        next.tick().await;
        let (poll, exit) = followed.poll(&args.locks).await;
        let now = clock::unix_time();
        top.take(poll, now);
        let text = match &screen {
            Some(_) => Screen::frame(&top.text(now)),
            None => top.text(now) + "\n",
        };
        let mut out = stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Ok),
            Err(e) => {
                let message = format!("writing to the standard output: {e}");
                return Err(Failure::new(Exit::Software, message));
            }
            Ok(()) => {}
        }
        shown += 1;
        if args.count == Some(shown) {
            return Ok(exit);
        }
    }
}

impl Followed {
    async fn poll(&self, locks: &[LockName]) -> (Poll, Exit) {
        match self {
            Self::Masters(session) => {
                let status = status::gather(session, locks, false).await;
                let exit = session::exit(status.reach);
                (Poll::of_masters(&status), exit)
            }
            Self::Clusters(asked) => {
                let status = of_clusters(&asked.clusters, &asked.given, &asked.wanted).await;
                (Poll::of_clusters(&status), exit_of(status.extent()))
            }
        }
    }
}

/// The terminal with a hidden cursor, which would jump otherwise. Dropping this value shows the cursor again.
struct Screen;

impl Screen {
    fn take() -> Self {
        // A failure to write is reported at the first table.
        let _ = stdout().write_all(b"\x1b[?25l\x1b[2J");
        Self
    }

    fn frame(text: &str) -> String {
        let (Width(columns), Height(rows)) = terminal_size().unwrap_or((Width(80), Height(24)));
        frame(text, columns.into(), rows.into())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = stdout();
        let _ = out.write_all(b"\x1b[?25h\r\n").and_then(|()| out.flush());
    }
}
