//! Tests the scripts that check the program and the SBOM of a release.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::installed::is_there_or_report;
use super::source::ROOT;

#[test]
fn sbom_is_one_document_that_lists_the_packages() {
    if !is_there_or_report("python3", "scripts/check-sbom") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let check = |document: &str| {
        let file = folder.path().join("sbom.spdx.json");
        fs::write(&file, document).unwrap();
        let mut command = Command::new(Path::new(ROOT).join("scripts/check-sbom"));
        let output = command.arg(file).arg("redlock-core").output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    };
    let document = r#"{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "sbom",
        "documentNamespace": "https://a", "creationInfo": {"created": "2026-01-01T00:00:00Z", "creators": ["Tool: t"]},
        "packages": [{"SPDXID": "SPDXRef-Package-1", "name": "redlock-core", "downloadLocation": "NOASSERTION"}]}"#;
    assert_eq!(check(document), (0, String::new()));
    // As `imagetools inspect` prints it for several platforms.
    let (code, text) = check(&format!("{{\"linux/amd64\": {{\"SPDX\": {document}}}}}"));
    assert!(code == 1 && text.contains("spdxVersion is missing"), "{text}");
    for (from, to, wanted) in [
        ("redlock-core", "other", "packages: redlock-core is not listed"),
        ("SPDX-2.3", "SPDX-9", "it must be SPDX-2.x"),
        (
            "\"downloadLocation\": \"NOASSERTION\"",
            "\"x\": 1",
            "packages[0].downloadLocation is missing",
        ),
        ("{\"spdxVersion\"", "[\"spdxVersion\"", "Expecting"),
    ] {
        let (code, text) = check(&document.replacen(from, to, 1));
        assert!(code == 1 && text.contains(wanted), "{wanted}: {text}");
    }
    assert_eq!(check("null").0, 1);
}

#[test]
fn sbom_of_a_release_is_the_document_that_lists_the_crates() {
    if !is_there_or_report("jq", "scripts/sbom-of-crates.jq") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let printed = folder.path().join("printed");
    let select = |text: String| {
        fs::write(&printed, text).unwrap();
        let mut command = Command::new("jq");
        command.args(["--compact-output", "--from-file"]);
        command.arg(Path::new(ROOT).join("scripts/sbom-of-crates.jq"));
        let output = command.arg(&printed).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let document = |name: &str| format!(r#"{{"spdxVersion":"SPDX-2.3","packages":[{{"name":"{name}"}}]}}"#);
    let (program, crates) = (document("ca-certificates"), document("redlock-core"));
    // With the documents of the final image and of the context in either order, for one platform and by platform.
    for (first, other) in [(&program, &crates), (&crates, &program)] {
        let one = format!(r#"{{"SPDX":{first},"AdditionalSPDXs":[{other}]}}"#);
        assert_eq!(select(one.clone()).trim(), crates);
        assert_eq!(select(format!(r#"{{"linux/arm64":{one}}}"#)).trim(), crates);
    }
    assert_eq!(select(format!(r#"{{"SPDX":{program}}}"#)).trim(), "null");
}

#[test]
fn program_of_the_image_is_small_and_has_no_symbols() {
    if !is_there_or_report("readelf", "scripts/check-program") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("usr/local/bin/redlock");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let check = |limit: &str| {
        let mut command = Command::new(Path::new(ROOT).join("scripts/check-program"));
        let output = command.arg(folder.path()).arg(limit).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    };
    // The program of a test has symbols, and a tool of the system has none.
    fs::copy(env!("CARGO_BIN_EXE_redlock"), &program).unwrap();
    let (code, text) = check("1");
    assert!(
        code == 1 && text.contains("at most 1 MiB") && text.contains(".symtab"),
        "{text}"
    );
    fs::copy("/bin/true", &program).unwrap();
    let (code, text) = check("1");
    assert_eq!(code, 0, "{text}");
}
