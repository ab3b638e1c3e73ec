use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use proptest::{prelude::*, sample::Index};

use super::*;

const QUORUM: &str = "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {name: default}\n\
                      spec: {masters: [{name: a, url: redis://a}, {name: b, url: redis://b}, {name: c, url: redis://c}]}\n";

fn lock(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: {name}, namespace: ns}}\n\
         spec: {{quorumRef: {{name: default}}{spec}}}\n"
    )
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn loaded(files: &[(&str, &str)]) -> Loaded {
    load(folder(files).path()).unwrap()
}

fn shown(loaded: &Loaded) -> Vec<String> {
    loaded.problems.iter().map(ToString::to_string).collect()
}

fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.locks.iter().map(|lock| lock.name.as_str()).collect()
}

#[test]
fn the_example_loads_without_problems() {
    let example = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/standalone")).unwrap();
    assert_eq!(shown(&example), Vec::<String>::new());
    let masters: Vec<(&str, &str)> = example.quorums[0]
        .masters
        .iter()
        .map(|m| (m.name.as_str(), m.url.as_str()))
        .collect();
    assert_eq!(
        masters,
        [
            ("m0", "redis://127.0.0.1:7001"),
            ("m1", "redis://127.0.0.1:7002"),
            ("m2", "redis://127.0.0.1:7003"),
            ("m3", "redis://127.0.0.1:7004"),
            ("m4", "redis://127.0.0.1:7005"),
        ]
    );
    assert_eq!(example.locks.len(), 6);
    assert!(
        example
            .locks
            .iter()
            .any(|lock| lock.object() == "billing/nightly-report")
    );
    let short = example
        .locks
        .iter()
        .filter(|lock| lock.timings.lease_duration == Duration::from_secs(3));
    assert_eq!(short.count(), 2);
}

#[test]
fn files_are_read_by_name_and_only_manifests() {
    let files = [
        ("20.yml", lock("b", "")),
        ("10.yaml", lock("a", "")),
        ("00.yaml", QUORUM.to_owned()),
        (".hidden.yaml", lock("c", "")),
        ("notes.txt", lock("d", "")),
        ("old.yaml.bak", lock("e", "")),
        ("yaml", lock("f", "")),
    ];
    let folder = folder(&files.each_ref().map(|(name, text)| (*name, text.as_str())));
    fs::create_dir(folder.path().join("more.yaml")).unwrap();
    let loaded = load(folder.path()).unwrap();
    assert_eq!(shown(&loaded), Vec::<String>::new());
    assert_eq!(names(&loaded), ["a", "b"]);
}

#[test]
fn a_mounted_config_map_is_read_once() {
    let folder = folder(&[]);
    let version = folder.path().join("..2026_01_01");
    fs::create_dir(&version).unwrap();
    fs::write(
        version.join("all.yaml"),
        format!("{QUORUM}---\n{}", lock("a", "")),
    )
    .unwrap();
    symlink("..2026_01_01", folder.path().join("..data")).unwrap();
    symlink("..data/all.yaml", folder.path().join("all.yaml")).unwrap();
    let loaded = load(folder.path()).unwrap();
    assert_eq!((shown(&loaded), names(&loaded)), (vec![], vec!["a"]));
}

#[test]
fn an_unreadable_object_is_named_and_the_others_continue() {
    let lock = lock("a", "");
    let folder = folder(&[("q.yaml", QUORUM), ("secret.yaml", QUORUM), ("z.yaml", &lock)]);
    symlink("nowhere", folder.path().join("gone.yaml")).unwrap();
    let _socket = UnixListener::bind(folder.path().join("plug.yaml")).unwrap();
    let secret = folder.path().join("secret.yaml");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&secret).is_ok() {
        // Root reads everything; a file that is too large takes its place.
        fs::File::create(&secret)
            .unwrap()
            .set_len(FILE_LIMIT + 1)
            .unwrap();
    }
    let loaded = load(folder.path()).unwrap();
    assert_eq!(names(&loaded), ["a"]);
    let problems = shown(&loaded);
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(
        problems[0].starts_with("gone.yaml: cannot be read: "),
        "{problems:?}"
    );
    assert!(
        problems[1].starts_with("plug.yaml: cannot be read: not a regular file"),
        "{problems:?}"
    );
    assert!(
        problems[2].starts_with("secret.yaml: cannot be read: "),
        "{problems:?}"
    );
}

#[test]
fn a_folder_that_is_not_there_is_an_error_that_names_it() {
    let error = load(Path::new("/nowhere/manifests")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/manifests"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(load(file.path()).is_err());
    assert_eq!(loaded(&[]), Loaded::default());
}

#[test]
fn every_problem_of_a_document_shows_with_its_place() {
    let bad = lock("a", ", leaseDurationSeconds: 1, state: Frozen");
    let loaded = loaded(&[("locks.yaml", &format!("{QUORUM}---\n{bad}---\n{}", lock("b", "")))]);
    assert_eq!(names(&loaded), ["b"]);
    assert_eq!(
        shown(&loaded),
        [
            "locks.yaml, document 2 (LeaderLock ns/a), spec.leaseDurationSeconds: 1 is out of bounds: use 2 to 86400 seconds",
            "locks.yaml, document 2 (LeaderLock ns/a), spec.reason: is required with state: Frozen: give the reason",
        ]
    );
}

#[test]
fn a_lock_needs_its_quorum() {
    let bad_quorum = QUORUM.replace("redis://b", "redis://a");
    let loaded = loaded(&[
        ("a.yaml", &lock("a", "")),
        ("b.yaml", &lock("b", "").replace("name: default", "name: other")),
        ("q.yaml", &bad_quorum),
    ]);
    assert_eq!((loaded.quorums.len(), loaded.locks.len()), (0, 0));
    let problems = shown(&loaded);
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(
        problems[0].contains("spec.quorumRef.name: RedisQuorum \"default\" cannot be used"),
        "{problems:?}"
    );
    assert!(
        problems[1].contains("RedisQuorum \"other\" is not declared in this folder"),
        "{problems:?}"
    );
    assert!(
        problems[2].contains("q.yaml, document 1 (RedisQuorum default), spec.masters[1].url"),
        "{problems:?}"
    );
}

#[test]
fn an_immediate_first_start_is_refused_here() {
    let loaded = loaded(&[(
        "q.yaml",
        &QUORUM.replace("spec: {", "spec: {firstStart: Immediate, "),
    )]);
    assert_eq!(loaded.quorums, []);
    let problems = shown(&loaded);
    assert!(
        problems[0].contains("spec.firstStart: Immediate is not possible with --standalone"),
        "{problems:?}"
    );
}

#[test]
fn a_target_declared_twice_stays_with_the_first() {
    let loaded = loaded(&[
        ("a.yaml", QUORUM),
        ("b.yaml", &lock("a", "")),
        ("c.yaml", &lock("a", ", leaseDurationSeconds: 3")),
        ("d.yaml", &lock("b", ", lockName: ns/a")),
        ("e.yaml", QUORUM),
        ("f.yaml", &QUORUM.replace("name: default", "name: other")),
    ]);
    assert_eq!((names(&loaded), loaded.quorums.len()), (vec!["a"], 1));
    assert_eq!(loaded.locks[0].timings.lease_duration, Duration::from_secs(15));
    let problems = shown(&loaded);
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(
        problems[0].contains("c.yaml") && problems[0].contains("declared in b.yaml, document 1"),
        "{problems:?}"
    );
    assert!(
        problems[1].contains("d.yaml")
            && problems[1].contains("spec.lockName: \"ns/a\" is already the lock name of LeaderLock ns/a")
    );
    assert!(
        problems[2].contains("e.yaml") && problems[2].contains("declared in a.yaml"),
        "{problems:?}"
    );
    assert!(
        problems[3].contains("f.yaml") && problems[3].contains("spec.keyPrefix"),
        "{problems:?}"
    );
}

#[test]
fn objects_without_a_name_are_not_taken_for_one() {
    let nameless = lock("a", "").replace("name: a, ", "");
    let loaded = loaded(&[
        ("a.yaml", QUORUM),
        ("b.yaml", &format!("{nameless}---\n{nameless}")),
    ]);
    let problems = shown(&loaded);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems
            .iter()
            .all(|p| p.contains("metadata.name: \"\" is not a valid name")),
        "{problems:?}"
    );
}

#[test]
fn lock_names_are_free_where_there_are_no_namespaces_to_guard() {
    let loaded = loaded(&[("a.yaml", QUORUM), ("b.yaml", &lock("a", ", lockName: other/x"))]);
    assert_eq!(
        (shown(&loaded), loaded.locks[0].lock_name.as_str()),
        (vec![], "other/x")
    );
}

#[test]
fn targets_are_accepted() {
    let target =
        ", targets: [{name: t, action: Scale, ref: {apiVersion: apps/v1, kind: Deployment, name: d}}]";
    let loaded = loaded(&[("a.yaml", QUORUM), ("b.yaml", &lock("a", target))]);
    assert_eq!((shown(&loaded), loaded.locks[0].targets.len()), (vec![], 1));
}

proptest! {
    #[test]
    fn no_folder_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), spec in "[\\PC]{0,30}") {
        let text = [bytes, b"\n---\n".to_vec(), QUORUM.into(), b"---\n".to_vec(), lock("a", &spec).into()].concat();
        let parsed = parse::parse("f.yaml", &text);
        let loaded = assemble::assemble(parsed.documents, parsed.problems);
        prop_assert!(loaded.locks.len() <= 1);
    }

    #[test]
    fn no_manifest_of_the_corpus_panics_whatever_its_lines(
        file in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), any::<Index>(), 0..5_u8), 0..8),
    ) {
        let corpus = corpus();
        let mut lines: Vec<String> = file.get(&corpus).lines().map(str::to_owned).collect();
        for (one, other, how) in changes {
            let (one, other) = (one.index(lines.len()), other.index(lines.len()));
            match how {
                0 => lines.swap(one, other),
                1 => lines.insert(one, lines[other].clone()),
                2 if lines.len() > 1 => _ = lines.remove(one),
                3 => lines[one].insert_str(0, "  "),
                _ => {
                    let value = ["-1", "9223372036854775808", "null", "[]", "{}", "1e400", "*x", "!!binary x"];
                    let key = lines[one].split(':').next().unwrap_or_default().to_owned();
                    lines[one] = format!("{key}: {}", value[other % value.len()]);
                }
            }
        }
        let parsed = parse::parse("f.yaml", lines.join("\n").as_bytes());
        let _ = assemble::assemble(parsed.documents, parsed.problems);
    }
}

fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/manifests");
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    all.sort();
    all.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}
