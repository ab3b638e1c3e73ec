//! The words that CONTRIBUTING.md bans in text that users read. Files with hits from before the rule are listed with their
//! number in `words.allowed`, which only shrinks: `make generate` lowers a number and never raises one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::source::ROOT;
use super::visible_text::{Passage, passages};

const ALLOWED: &str = "tests/repository/words.allowed";

/// Words that are wrong wherever they stand, and what to write in their place.
const BANNED: [(&[&str], &str); 9] = [
    (
        &[
            "whoever",
            "somebody",
            "someone",
            "nobody",
            "everybody",
            "everyone",
            "anybody",
        ],
        "name the subject: the operator, the holder, a replica",
    ),
    (&["tell", "tells", "told", "telling"], "report, show, distinguish"),
    (&["say", "says", "said", "saying"], "report, state, name"),
    (&["mind", "minds", "minded"], "affect, matter to, remember"),
    (&["heed", "heeds", "heeded"], "follow, respect"),
    (&["look", "looks", "looked", "looking"], "check, read, inspect"),
    (&["go on", "goes on", "went on", "going on"], "continue"),
    (&["come of", "comes of", "came of"], "result from, follow from"),
    (
        &["hands are off", "is none", "are none"],
        "name the value that is missing or refused, and the expected one",
    ),
];

/// A clause that one of these opens has no named subject: `what is stored`, `who holds it`.
const SUBJECTS: [&str; 2] = ["what", "who"];
const VERBS: [&str; 26] = [
    "is", "are", "was", "were", "has", "have", "had", "does", "did", "can", "could", "must", "may", "will",
    "would", "comes", "goes", "holds", "needs", "remains", "runs", "stands", "stays", "takes", "wants",
    "writes",
];

/// A word in lower case, and whether a mark follows that ends a clause.
struct Word {
    text: String,
    ends: Option<char>,
}

fn words(text: &str) -> Vec<Word> {
    let pieces = text.split(|c: char| c.is_whitespace() || "()[]*—–".contains(c));
    pieces
        .filter(|piece| !piece.is_empty())
        .map(|piece| Word {
            text: piece
                .trim_end_matches(['.', ',', ':', ';', '?', '!'])
                .to_lowercase(),
            ends: piece.chars().last().filter(|c| ".,:;?!".contains(*c)),
        })
        .collect()
}

/// Each hit of a passage, as the words that were found.
fn hits(text: &str) -> Vec<String> {
    let words = words(text);
    (0..words.len())
        .filter_map(|at| banned_at(&words, at).or_else(|| subject_at(&words, at)))
        .collect()
}

fn banned_at(words: &[Word], at: usize) -> Option<String> {
    let phrases = BANNED.iter().flat_map(|(phrases, _)| *phrases);
    let mut found = phrases.filter(|phrase| {
        let count = phrase.split(' ').count();
        let Some(here) = words.get(at..at + count) else {
            return false;
        };
        let joined = here[..count - 1].iter().all(|word| word.ends.is_none());
        joined
            && phrase
                .split(' ')
                .zip(here)
                .all(|(wanted, word)| wanted == word.text)
    });
    found.next().map(|phrase| (*phrase).to_owned())
}

/// A question is no hit: in `what is stored?` the subject is what is asked for.
fn subject_at(words: &[Word], at: usize) -> Option<String> {
    let (word, verb) = (&words[at], words.get(at + 1)?);
    let sentence = words[at..]
        .iter()
        .find_map(|word| word.ends.filter(|mark| ".?!".contains(*mark)));
    let subject = SUBJECTS.contains(&word.text.as_str()) && VERBS.contains(&verb.text.as_str());
    (subject && word.ends.is_none() && sentence != Some('?')).then(|| format!("{} {}", word.text, verb.text))
}

fn found(passages: &[Passage]) -> BTreeMap<&str, Vec<String>> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for passage in passages {
        let hits = hits(&passage.text);
        let place: Vec<&str> = passage.text.split_whitespace().take(16).collect();
        let hits = hits
            .into_iter()
            .map(|hit| format!("{hit:?} in: {}", place.join(" ")));
        found.entry(&passage.path).or_default().extend(hits);
    }
    found.retain(|_, hits| !hits.is_empty());
    found
}

fn allowed(text: &str) -> BTreeMap<&str, usize> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(count, path)| (path, count.parse().unwrap()))
        .collect()
}

/// The differences between the hits and the list, both ways.
fn differences(found: &BTreeMap<&str, Vec<String>>, allowed: &BTreeMap<&str, usize>) -> Vec<String> {
    let mut differences = Vec::new();
    for (path, hits) in found {
        let most = allowed.get(path).copied().unwrap_or_default();
        if hits.len() > most {
            differences.push(format!(
                "{path}: {} hits, {most} allowed:\n  {}",
                hits.len(),
                hits.join("\n  ")
            ));
        }
    }
    for (path, most) in allowed {
        let now = found.get(path).map_or(0, Vec::len);
        if now < *most {
            differences.push(format!(
                "{path}: {now} hits, {most} allowed; run `make generate` to lower the number"
            ));
        }
    }
    differences
}

#[test]
fn text_for_users_has_no_banned_words() {
    let path = Path::new(ROOT).join(ALLOWED);
    let text = fs::read_to_string(&path).unwrap();
    let passages = passages();
    let found = found(&passages);
    let mut allowed = allowed(&text);
    if std::env::var_os("REDLOCK_REGENERATE").is_some() {
        lower(&mut allowed, &found);
        let comment: String = text
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect();
        let lines: String = allowed
            .iter()
            .map(|(path, most)| format!("{most} {path}\n"))
            .collect();
        fs::write(&path, comment + &lines).unwrap();
    }
    let differences = differences(&found, &allowed);
    assert!(
        differences.is_empty(),
        "CONTRIBUTING.md, \"How we write\", lists what to write instead:\n{}",
        differences.join("\n")
    );
}

fn lower<'a>(allowed: &mut BTreeMap<&'a str, usize>, found: &BTreeMap<&'a str, Vec<String>>) {
    for (path, most) in allowed.iter_mut() {
        *most = (*most).min(found.get(path).map_or(0, Vec::len));
    }
    allowed.retain(|_, most| *most > 0);
}

#[test]
fn each_rule_finds_its_words_and_leaves_usual_sentences() {
    for (text, wanted) in [
        ("Whoever holds the lock renews it.", vec!["whoever"]),
        ("The log says so, and nobody reads it.", vec!["says", "nobody"]),
        ("The replica goes on.", vec!["goes on"]),
        ("What is stored stays.", vec!["what is"]),
        ("It depends on who holds it", vec!["who holds"]),
        ("log level § is none", vec!["is none"]),
        ("What is stored?", vec![]),
        (
            "The operator essays a lookup; it goes. On a failure it retries.",
            vec![],
        ),
        ("The holder writes what the master returned.", vec![]),
    ] {
        assert_eq!(hits(text), wanted, "{text}");
    }
}

#[test]
fn every_banned_word_stands_in_the_rules_of_the_project() {
    let rules = fs::read_to_string(Path::new(ROOT).join("CONTRIBUTING.md")).unwrap();
    let (_, rules) = rules.split_once("## How we write").unwrap();
    for (phrases, instead) in BANNED {
        assert!(
            rules.contains(phrases[0]) && rules.contains(instead),
            "{} | {instead}",
            phrases[0]
        );
    }
}

#[test]
fn the_list_only_shrinks() {
    let passage = |text: &str| Passage {
        path: "a.md".into(),
        text: text.into(),
    };
    let two = [passage("Nobody knows."), passage("It says so.")];
    let found_two = found(&two);
    let list = |count| BTreeMap::from([("a.md", count)]);
    assert!(differences(&found_two, &list(2)).is_empty());
    assert!(differences(&found_two, &list(1))[0].starts_with("a.md: 2 hits, 1 allowed"));
    assert!(differences(&found_two, &BTreeMap::new())[0].contains("\"says\" in: It says so."));
    assert!(differences(&found_two, &list(3))[0].contains("run `make generate`"));
    let mut raised = list(1);
    lower(&mut raised, &found_two);
    assert_eq!(raised, list(1), "a number is never raised");
    lower(&mut raised, &BTreeMap::new());
    assert!(raised.is_empty());
}
