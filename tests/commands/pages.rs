//! Tests that the shell blocks of pages work as printed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::common::pages::{Block, Mark, blocks, pages};
use crate::program::{init, urls};
use redlock_testkit::{ChildGuard, RedisServers, ServerOptions, free_port};

const BOUND: Duration = Duration::from_secs(60);
/// The time limit of a block, in seconds: a loop that waits for a state may have no end.
const SECONDS: &str = "50";
/// The most runs of a page. On a busy machine, a master may answer later than a command of a block waits.
const ATTEMPTS: usize = 4;
/// The ports of the masters on pages.
const MASTERS: [&str; 5] = ["7001", "7002", "7003", "7004", "7005"];
/// The ports of all other programs on pages.
const PORTS: [&str; 4] = ["8081", "8082", "4040", "4041"];
/// The page whose blocks begin without masters.
const FROM_NOTHING: &str = "docs/hands-on.md";
/// The words that the output of a page contains.
const WORDS: [(&str, &[&str]); 3] = [
    (
        "docs/hands-on.md",
        &[
            "5 of 5 masters vote",
            "report, token ",
            "another candidate has it: 75",
            "my turn",
            "\"role\"",
        ],
    ),
    ("docs/troubleshooting.md", &["exit code 75"]),
    (
        "docs/agent.md",
        &[
            "{\"name\":\"one\"}",
            "\"role\":\"Standby\"",
            "\"role\":\"Active\",\"holder\":\"two\"",
        ],
    ),
];

/// The repository as a user has it after a build, except for ports that may be in use.
struct Place {
    folder: TempDir,
    ports: Vec<(String, String)>,
    masters: Option<RedisServers>,
}

impl Place {
    fn new(page: &str) -> Self {
        let masters = (page != FROM_NOTHING).then(|| {
            let servers = RedisServers::start(MASTERS.len(), &ServerOptions::default()).unwrap();
            init(&servers, &[], &[]);
            servers
        });
        let of_masters = MASTERS.iter().enumerate().map(|(index, port)| {
            let free = masters
                .as_ref()
                .map_or_else(|| free_port().unwrap(), |all| all[index].port());
            ((*port).to_owned(), free.to_string())
        });
        let others = PORTS
            .iter()
            .map(|port| ((*port).to_owned(), free_port().unwrap().to_string()));
        let ports = of_masters.chain(others).collect();
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
            ports,
            masters,
        };
        place.furnish();
        place
    }

    fn furnish(&self) {
        let (root, here) = (Path::new(env!("CARGO_MANIFEST_DIR")), self.folder.path());
        for name in ["charts", "crds", "docs", "tests"] {
            std::os::unix::fs::symlink(root.join(name), here.join(name)).unwrap();
        }
        self.copy(&root.join("examples"), &here.join("examples"));
        fs::create_dir(here.join("bin")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_redlock"), here.join("bin/redlock")).unwrap();
        // A stand-in for cargo, since the program is already built.
        std::os::unix::fs::symlink("/bin/true", here.join("bin/cargo")).unwrap();
    }

    fn copy(&self, from: &Path, to: &Path) {
        if from.is_dir() {
            fs::create_dir(to).unwrap();
            for entry in from.read_dir().unwrap() {
                let name = entry.unwrap().file_name();
                self.copy(&from.join(&name), &to.join(&name));
            }
        } else {
            fs::write(to, self.at_home(&fs::read_to_string(from).unwrap())).unwrap();
        }
    }

    fn at_home(&self, text: &str) -> String {
        let mut text = text.replace("/tmp", self.folder.path().to_str().unwrap());
        // In two steps: a free port may contain the digits of a printed one.
        let blank = |index: usize| format!("\u{1}{index}\u{1}");
        for (index, (printed, _)) in self.ports.iter().enumerate() {
            text = text.replace(printed, &blank(index));
        }
        for (index, (_, free)) in self.ports.iter().enumerate() {
            text = text.replace(&blank(index), free);
        }
        text
    }

    /// Runs a block; returns its output, or an error if a command of it failed. The next block has the variables that
    /// it exports.
    fn typed(&self, block: &Block) -> Result<String, String> {
        let here = self.folder.path();
        let script = format!(
            "trap 'kill -9 $(jobs -p) 2>/dev/null || :' EXIT; touch exported; source ./exported\n\
             set -me -o pipefail\n{}\nexport -p > exported",
            self.at_home(&block.text)
        );
        let mut bash = Command::new("timeout");
        crate::common::forget_variables(&mut bash);
        let port = &self
            .ports
            .iter()
            .find(|(printed, _)| printed == "4040")
            .unwrap()
            .1;
        let path = format!("{}/bin:{}", here.display(), std::env::var("PATH").unwrap());
        // In the background of a terminal, a shell with `set -m` would stop.
        bash.args(["--foreground", "-k", "5", SECONDS, "bash", "-c", &script])
            .current_dir(here)
            .env("PATH", path)
            .env("HOME", here)
            .env("REDLOCK_LISTEN", format!("127.0.0.1:{port}"))
            .env("KUBECONFIG", here.join("no-kubeconfig"))
            .env_remove("KUBERNETES_SERVICE_HOST");
        if let Some(masters) = &self.masters {
            bash.env("REDLOCK_MASTERS", urls(masters));
        }
        let name = format!("{}:{}", block.page, block.line);
        let mut bash = ChildGuard::spawn(&name, &mut bash);
        let (status, _) = bash.wait(BOUND);
        let output = [bash.stdout(), bash.stderr()].concat().join("\n");
        if status.success() && !output.contains("panicked") {
            Ok(output)
        } else {
            Err(format!("{name} ended with {status}: {output}\n{}", block.text))
        }
    }
}

/// Stops servers that a page started.
impl Drop for Place {
    fn drop(&mut self) {
        for (_, port) in &self.ports {
            let client = redis::Client::open(format!("redis://127.0.0.1:{port}"));
            if let Ok(mut connection) = client.and_then(|client| client.get_connection()) {
                let _: Result<(), _> = redis::cmd("SHUTDOWN").arg("NOSAVE").query(&mut connection);
            }
        }
    }
}

fn play_once(page: &str, blocks: &[Block]) -> Result<(), String> {
    let place = Place::new(page);
    let output: String = blocks
        .iter()
        .map(|block| place.typed(block))
        .collect::<Result<String, String>>()?;
    let expected = WORDS.iter().filter(|(other, _)| *other == page);
    let missing = expected
        .flat_map(|(_, words)| *words)
        .find(|word| !output.contains(**word));
    missing.map_or(Ok(()), |word| {
        Err(format!("{page} does not contain {word:?}: {output}"))
    })
}

/// Runs a page, and repeats it in a new place unless a program panicked. Returns the last error.
fn play(page: &str, blocks: &[Block]) -> Result<(), String> {
    let mut result = play_once(page, blocks);
    for _ in 1..ATTEMPTS {
        match &result {
            Err(error) if !error.contains("panicked") => println!("{error}"),
            _ => break,
        }
        result = play_once(page, blocks);
    }
    result
}

#[test]
fn every_block_for_a_shell_works_as_printed() {
    let of_shell = |page: &String| -> Vec<Block> {
        let all = blocks(page).into_iter();
        all.filter(|block| block.mark == Some(Mark::Shell)).collect()
    };
    let pages: Vec<(String, Vec<Block>)> = pages()
        .into_iter()
        .map(|page| (page.clone(), of_shell(&page)))
        .filter(|(_, blocks)| !blocks.is_empty())
        .collect();
    for (page, _) in WORDS {
        assert!(
            pages.iter().any(|(other, _)| other == page),
            "{page} has no block"
        );
    }
    let wrong: Vec<String> = thread::scope(|scope| {
        let plays: Vec<_> = pages
            .iter()
            .map(|(page, blocks)| scope.spawn(|| play(page, blocks)))
            .collect();
        plays
            .into_iter()
            .filter_map(|play| play.join().unwrap().err())
            .collect()
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}
