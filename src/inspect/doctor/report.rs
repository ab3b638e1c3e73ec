//! The diagnosis as text.

use std::fmt::Write;

use super::{Check, Diagnosis, Level};
use crate::inspect::{Reach, text::table};

/// The level of detail of a diagnosis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// A line for each problem, and nothing without problems.
    Problems,
    /// A line for each master and each object, and the findings about those that are not good.
    #[default]
    Summary,
    /// A line for each check.
    Checks,
}

/// A master or an object.
struct Subject<'a> {
    name: String,
    /// The url of a master.
    url: Option<&'a str>,
    checks: &'a [Check],
}

impl Subject<'_> {
    fn title(&self) -> String {
        self.url
            .map_or_else(|| self.name.clone(), |url| format!("{} {url}", self.name))
    }

    fn row(&self) -> Vec<String> {
        let has = |level| self.checks.iter().any(|check| check.level == level);
        let result = if has(Level::Bad) {
            "problem"
        } else if has(Level::Warning) {
            "warning"
        } else {
            "ok"
        };
        // The number of locks or nodes that were judged. An object that was not read is not known to be good.
        let counted = ["locks", "nodes"];
        let counted = self.checks.iter().find(|check| counted.contains(&check.name));
        let counted = counted.map(|check| format!("{}: {}", check.name, check.found));
        let about = self.url.map(str::to_owned).or(counted);
        vec![self.name.clone(), result.to_owned(), about.unwrap_or_default()]
    }
}

impl Diagnosis {
    #[must_use]
    pub fn text(&self, detail: Detail) -> String {
        match detail {
            Detail::Problems => self.problems(),
            Detail::Summary => self.summary() + &self.end(),
            Detail::Checks => self.every_check() + &self.end(),
        }
    }

    fn subjects(&self) -> impl Iterator<Item = Subject<'_>> {
        let masters = self.masters.iter().map(|master| Subject {
            name: master.name.clone(),
            url: Some(&master.url),
            checks: &master.checks,
        });
        let objects = self.objects.iter().map(|object| Subject {
            name: format!("{} {}", object.kind, object.name),
            url: None,
            checks: &object.checks,
        });
        masters.chain(objects)
    }

    fn problems(&self) -> String {
        let mut text = String::new();
        for subject in self.subjects() {
            for check in subject.checks.iter().filter(|check| check.is_bad()) {
                let _ = write!(text, "{}: {}: {}", subject.name, check.name, check.found);
                let _ = match &check.hint {
                    Some(hint) => writeln!(text, " → {hint}"),
                    None => writeln!(text),
                };
            }
        }
        if let Some(turns) = self.turns.as_ref().filter(|turns| !turns.are_good()) {
            let _ = writeln!(text, "{}", turns.text());
        }
        if let Some(away) = &self.away {
            let _ = writeln!(text, "{away}");
        }
        if self.reach != Reach::Majority {
            text.push_str(&self.verdict());
        }
        text
    }

    fn summary(&self) -> String {
        let subjects: Vec<Subject<'_>> = self.subjects().collect();
        let table = table(&["CHECKED", "RESULT", "ABOUT"], subjects.iter().map(Subject::row));
        let (header, lines) = table.split_once('\n').unwrap_or((&table, ""));
        let mut text = format!("{header}\n");
        for (row, subject) in lines.lines().zip(&subjects) {
            let _ = writeln!(text, "{row}");
            for check in subject.checks.iter().filter(|check| check.level != Level::Good) {
                line(&mut text, check);
            }
        }
        text.push('\n');
        text
    }

    fn every_check(&self) -> String {
        let mut text = String::new();
        for subject in self.subjects() {
            let _ = writeln!(text, "{}", subject.title());
            for check in subject.checks {
                line(&mut text, check);
            }
            text.push('\n');
        }
        text
    }

    fn end(&self) -> String {
        let mut text = String::new();
        if let Some(turns) = &self.turns {
            let _ = writeln!(text, "{}\n", turns.text());
        }
        if let Some(away) = &self.away {
            let _ = writeln!(text, "{away}\n");
        }
        if let Some(id) = &self.quorum_id {
            let _ = writeln!(text, "quorum id: {id}");
        }
        text.push_str(&self.verdict());
        text
    }

    fn verdict(&self) -> String {
        let healthy = self.healthy && self.reach == Reach::Majority;
        format!(
            "{}: {} of {} masters vote, {} are needed\n",
            if healthy { "healthy" } else { "not healthy" },
            self.voting,
            self.masters.len(),
            self.majority
        )
    }
}

fn line(text: &mut String, check: &Check) {
    let mark = match check.level {
        Level::Good => '✓',
        Level::Warning => '!',
        Level::Bad => '✗',
    };
    let _ = writeln!(text, "  {mark} {:<16} {}", check.name, check.found);
    if let Some(hint) = &check.hint {
        let _ = writeln!(text, "    {:<16} → {hint}", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::doctor::{MasterDiagnosis, ObjectReport};

    fn master(name: &str, checks: Vec<Check>) -> MasterDiagnosis {
        MasterDiagnosis {
            name: name.into(),
            url: format!("redis://{name}:6379"),
            checks,
        }
    }

    fn diagnosis() -> Diagnosis {
        let sealed = || Check::good("sealed", "has a vote");
        let warning = Check::but(
            "persistence",
            Level::Warning,
            "no append-only file",
            "appendonly yes",
        );
        let bad = Check::but("sealed", Level::Bad, "sealing, 63 s left", "wait");
        let locks = Check::good("locks", "2 of 2 are ready");
        Diagnosis {
            healthy: false,
            fingerprint: "f".into(),
            quorum_id: Some("3f".into()),
            fingerprint_stored: true,
            majority: 2,
            voting: 2,
            masters: vec![
                master("m0", vec![sealed()]),
                master("m1", vec![sealed(), warning]),
                master("m2", vec![bad]),
            ],
            objects: vec![ObjectReport {
                kind: "RedisQuorum",
                name: "default".into(),
                checks: vec![locks],
            }],
            turns: None,
            away: None,
            reach: Reach::Majority,
        }
    }

    #[test]
    fn the_summary_has_one_line_each_and_explains_only_problems() {
        let text = "\
CHECKED              RESULT   ABOUT
m0                   ok       redis://m0:6379
m1                   warning  redis://m1:6379
  ! persistence      no append-only file
                     → appendonly yes
m2                   problem  redis://m2:6379
  ✗ sealed           sealing, 63 s left
                     → wait
RedisQuorum default  ok       locks: 2 of 2 are ready

quorum id: 3f
not healthy: 2 of 3 masters vote, 2 are needed
";
        assert_eq!(diagnosis().text(Detail::Summary), text);
    }

    #[test]
    fn every_check_is_written_on_demand() {
        let text = diagnosis().text(Detail::Checks);
        assert!(
            text.contains("m0 redis://m0:6379\n  ✓ sealed           has a vote\n"),
            "{text}"
        );
        assert!(text.contains("RedisQuorum default\n  ✓ locks "), "{text}");
        assert!(
            text.ends_with("not healthy: 2 of 3 masters vote, 2 are needed\n"),
            "{text}"
        );
    }

    #[test]
    fn quiet_is_silent_about_harmless_events() {
        assert_eq!(
            diagnosis().text(Detail::Problems),
            "m2: sealed: sealing, 63 s left → wait\n"
        );
        let mut well = diagnosis();
        well.masters.pop();
        assert_eq!(well.text(Detail::Problems), "");
    }

    /// Each master is sealed, under a different id: none of the checks is a problem by itself.
    #[test]
    fn masters_of_which_no_majority_votes_are_never_called_healthy() {
        let mut split = diagnosis();
        split.masters.pop();
        (split.healthy, split.voting, split.reach) = (true, 0, Reach::TooFew);
        let verdict = "not healthy: 0 of 2 masters vote, 2 are needed\n";
        assert_eq!(split.text(Detail::Problems), verdict);
        assert!(split.text(Detail::Summary).ends_with(verdict));
    }
}
