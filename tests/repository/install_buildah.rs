//! Tests `scripts/install-buildah` with package managers that record their arguments.

use std::fs;

use super::programs::Programs;

/// Installs a buildah that does nothing.
const INSTALLS: &str = "
echo \"${0##*/} $*\" >>\"$SAID\"
case \"$*\" in *buildah*) cp \"$0\" \"${0%/*}/buildah\" ;; esac";

fn run(programs: &Programs) -> (bool, String, String) {
    let record = tempfile::NamedTempFile::new().unwrap();
    let output = programs
        .command("install-buildah")
        .env("SAID", record.path())
        .output()
        .unwrap();
    assert!(output.stdout.is_empty());
    let stderr = String::from_utf8(output.stderr).unwrap();
    (
        output.status.success(),
        stderr,
        fs::read_to_string(record.path()).unwrap(),
    )
}

fn system() -> Programs {
    let programs = Programs::real(&["bash", "env", "cp"]);
    programs.add("id", "echo 0");
    programs
}

#[test]
fn installed_buildah_is_kept_without_output() {
    let programs = system();
    programs.add("buildah", "");
    programs.add("apt-get", INSTALLS);
    assert_eq!(run(&programs), (true, String::new(), String::new()));
}

#[test]
fn every_package_manager_gets_its_own_command() {
    for (manager, wanted) in [
        ("apt-get", "apt-get -q install -y --no-install-recommends buildah"),
        ("dnf", "dnf install -y buildah"),
        ("apk", "apk add --no-cache buildah"),
        ("pacman", "pacman -Sy --noconfirm --needed buildah"),
        ("zypper", "zypper --non-interactive install buildah"),
    ] {
        let programs = system();
        programs.add(manager, INSTALLS);
        let (installed, stderr, calls) = run(&programs);
        assert!(installed, "{stderr}");
        assert_eq!(calls.lines().last(), Some(wanted));
    }
}

#[test]
fn a_failure_names_the_package() {
    let none = run(&system());
    assert!(
        !none.0 && none.1.contains("install the package `buildah`"),
        "{none:?}"
    );
    let programs = system();
    programs.add("dnf", "exit 1");
    let failed = run(&programs);
    assert!(
        !failed.0 && failed.1.contains("installing the package `buildah` failed"),
        "{failed:?}"
    );
}
