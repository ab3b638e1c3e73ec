//! Tests that a test runs every command that a page prints, or that the page has a reason.

use std::path::Path;

use super::pages::{Mark, blocks, pages, read};
use super::source::ROOT;

#[test]
fn every_block_of_commands_names_its_test() {
    let pages = pages();
    assert!(pages.len() > 20, "{pages:?}");
    let all: Vec<_> = pages.iter().flat_map(|page| blocks(page)).collect();
    let silent: Vec<String> = all
        .iter()
        .filter(|block| match &block.mark {
            None => true,
            Some(Mark::Shell | Mark::Cluster) => false,
            Some(Mark::By(file)) => !asks_for(file, &block.page),
            Some(Mark::NotRun(reason)) => reason.trim().is_empty(),
        })
        .map(|block| format!("{}:{}", block.page, block.line))
        .collect();
    assert!(
        silent.is_empty(),
        "needs a line in front such as `<!-- runs: shell -->`; tests/common/pages.rs has the others: {silent:#?}"
    );
    let run = all
        .iter()
        .filter(|block| !matches!(block.mark, Some(Mark::NotRun(_))));
    assert!(run.count() * 2 > all.len(), "most commands are run");
}

/// Reports whether that test file exists and reads the page, or all pages of its folder.
fn asks_for(file: &str, page: &str) -> bool {
    let text = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_default();
    let folder = page.split('/').next().unwrap_or_default();
    text.contains(&format!("\"{file}\"")) && (text.contains(page) || text.contains(&format!("\"{folder}\"")))
}

#[test]
fn a_block_is_read_with_its_mark() {
    let text = "\
Words.

<!-- runs: shell -->
```sh
one \\
  two
three
```

  <!-- not run: takes an hour -->
  ```sh
  four
  ```

```yaml
not: a command
```
<!-- runs: tests/x.rs -->

```sh
five
```
";
    let found = read("page.md", text);
    let marks: Vec<_> = found.iter().map(|block| block.mark.clone()).collect();
    assert_eq!(
        marks,
        [
            Some(Mark::Shell),
            Some(Mark::NotRun("takes an hour".into())),
            None
        ],
        "a mark stands right above"
    );
    assert_eq!(found[0].commands(), ["one \\\n  two", "three"]);
    assert_eq!((found[1].text.as_str(), found[1].line), ("four\n", 12));
}
