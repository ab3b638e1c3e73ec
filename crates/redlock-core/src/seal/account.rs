//! Reads the registers of one master in pages, so that no call keeps the master busy for long.
//!
//! Pure. Each page shows the seal of its own moment. A register only grows, and a master that lost its memory has no seal for
//! longer than a read takes: so all pages of one read with one seal belong to one memory.

use super::registers::Registers;
use crate::{QuorumId, Unknown, quorum_id, reply, reply::Value};

/// The most bytes of the registers of one master in memory: those of about 80,000 locks with targets. Beyond it the master is no
/// source.
const LONGEST: usize = 48 * 1024 * 1024;
/// The bytes that a register takes in memory besides its texts.
const ENTRY: usize = 96;

/// One master's registers, and whether it was sealed when it returned them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub registers: Registers,
    origin: AccountOrigin,
}

/// The server that showed a page, and its seal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AccountOrigin {
    run_id: String,
    seal: String,
    fingerprint: String,
    quorum: Option<QuorumId>,
}

/// A read of the registers of one master that has not ended.
#[derive(Clone, Debug, Default)]
pub struct AccountReader {
    account: Option<Account>,
    bytes: usize,
}

/// What follows a page.
#[derive(Clone, Debug)]
pub enum AfterPage {
    /// The page at this cursor.
    Page {
        cursor: u64,
        reader: AccountReader,
    },
    End(Account),
}

impl AccountReader {
    /// The cursor of the first page.
    pub const FIRST: u64 = 0;

    /// Adds a reply of the `registers` script. All pages of a source show one run and one seal (P-71).
    ///
    /// # Errors
    /// Returns an error for a page of another form, of another server or seal than the pages before, and for registers that
    /// are too long.
    pub fn add_page(mut self, items: &[Value]) -> Result<AfterPage, Unknown> {
        let [run_id, seal, fingerprint, cursor, Value::Array(fields)] = items else {
            return Err(Unknown::Reply(
                "registers without a run_id, a seal and a cursor".into(),
            ));
        };
        let (fingerprint, quorum) = quorum_id::split(reply::text(fingerprint)?);
        let origin = AccountOrigin {
            run_id: reply::text(run_id)?.to_owned(),
            seal: reply::text(seal)?.to_owned(),
            fingerprint: fingerprint.to_owned(),
            quorum,
        };
        let mut account = self.account.unwrap_or_else(|| Account {
            registers: Registers::default(),
            origin: origin.clone(),
        });
        if account.origin != origin {
            return Err(Unknown::Reply(
                "the seal changed while the registers were read".into(),
            ));
        }
        for pair in fields.chunks(2) {
            let [field, value] = pair else {
                return Err(Unknown::Reply("register without value".into()));
            };
            let (field, value) = (reply::text(field)?, reply::text(value)?);
            self.bytes += field.len() + value.len() + ENTRY;
            account.registers.read(field, value)?;
        }
        if self.bytes > LONGEST {
            return Err(Unknown::Reply(format!(
                "the registers have more than {LONGEST} bytes"
            )));
        }
        let cursor = reply::text(cursor)?;
        let cursor = cursor
            .parse()
            .map_err(|_| Unknown::Reply(format!("the cursor of the registers is {cursor:.60?}")))?;
        Ok(match cursor {
            Self::FIRST => AfterPage::End(account),
            cursor => AfterPage::Page {
                cursor,
                reader: Self {
                    account: Some(account),
                    bytes: self.bytes,
                },
            },
        })
    }
}

impl Account {
    /// Reports whether these are registers of a master that may vote in this quorum. The script shows no seal that is not of
    /// the present process.
    #[must_use]
    pub fn sealed(&self, fingerprint: &str, quorum: &QuorumId) -> bool {
        let origin = &self.origin;
        let sealed = !origin.run_id.is_empty() && origin.seal == origin.run_id;
        sealed && origin.fingerprint == fingerprint && origin.quorum.as_ref() == Some(quorum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEALED: [&str; 3] = ["1234", "1234", "f quorum=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"];

    fn page(head: [&str; 3], cursor: &str, fields: &[&str]) -> Vec<Value> {
        let texts = head.iter().chain([&cursor]);
        let fields = fields.iter().map(|text| Value::from(*text)).collect();
        texts
            .map(|text| Value::from(*text))
            .chain([Value::Array(fields)])
            .collect()
    }

    fn quorum(digit: &str) -> QuorumId {
        QuorumId::parse(&digit.repeat(32)).unwrap()
    }

    #[test]
    fn seal_and_fingerprint_are_no_registers() {
        let fields = [
            "seal",
            "1234",
            "fingerprint",
            "f",
            "evicted",
            "3",
            "replication",
            "b1|0",
            "restored",
            "77",
            "counter",
            "7",
            "held:a/b",
            "5",
            "slot:a/t",
            "9|u|v",
        ];
        let AfterPage::End(account) = AccountReader::default()
            .add_page(&page(SEALED, "0", &fields))
            .unwrap()
        else {
            panic!("no page follows");
        };
        assert!(account.sealed("f", &quorum("a")));
        assert!(!account.sealed("g", &quorum("a")), "another fingerprint");
        assert!(!account.sealed("f", &quorum("b")), "another quorum");
        let names: Vec<&str> = account.registers.numbers.keys().map(String::as_str).collect();
        assert_eq!(names, ["counter", "held:a/b"]);
        assert_eq!(account.registers.slots["slot:a/t"].uid, "u|v");
    }

    #[test]
    fn a_seal_of_an_earlier_run_does_not_count() {
        for head in [["2", "1", SEALED[2]], ["2", "", SEALED[2]], ["", "", SEALED[2]]] {
            let AfterPage::End(account) = AccountReader::default().add_page(&page(head, "0", &[])).unwrap()
            else {
                panic!("no page follows");
            };
            assert!(!account.sealed("f", &quorum("a")), "{head:?}");
        }
    }

    #[test]
    fn pages_add_up_and_a_later_value_of_a_register_counts() {
        let first = page(SEALED, "18446744073709551615", &["held:a", "5", "counter", "7"]);
        let AfterPage::Page { cursor, reader } = AccountReader::default().add_page(&first).unwrap() else {
            panic!("a page follows");
        };
        assert_eq!(cursor, u64::MAX);
        let last = page(SEALED, "0", &["counter", "9", "held:b", "6"]);
        let AfterPage::End(account) = reader.add_page(&last).unwrap() else {
            panic!("no page follows");
        };
        let number = |field| account.registers.number(field);
        assert_eq!((number("held:a"), number("held:b"), number("counter")), (5, 6, 9));
    }

    #[test]
    fn a_reply_of_an_unknown_form_is_no_source() {
        for (second, text) in [
            (page(["9", "9", SEALED[2]], "0", &[]), "the seal changed"),
            (page(["1234", "", SEALED[2]], "0", &[]), "the seal changed"),
            (page(SEALED, "0", &["counter"]), "without value"),
            (page(SEALED, "-1", &[]), "the cursor"),
            (page(SEALED, "0", &["counter", "many"]), "counter holds"),
            (page(SEALED, "0", &["counter", "-1"]), "counter holds"),
            (page(SEALED, "0", &["slot:a/t", "9"]), "slot:a/t holds"),
            (page(SEALED, "0", &["slot:a/t", "x|u"]), "slot:a/t holds"),
            (page(SEALED, "0", &[])[..3].to_vec(), "without a run_id"),
        ] {
            let AfterPage::Page { reader, .. } = AccountReader::default()
                .add_page(&page(SEALED, "7", &[]))
                .unwrap()
            else {
                panic!("a page follows");
            };
            let error = reader.add_page(&second).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn registers_of_a_hostile_master_are_bounded() {
        for size in [1, 1 << 20] {
            let error = endless(size);
            assert!(error.contains("bytes"), "{error}");
        }
    }

    fn endless(size: usize) -> String {
        let long = "x".repeat(size);
        let mut reader = AccountReader::default();
        for _ in 0..LONGEST / ENTRY {
            match reader.add_page(&page(SEALED, "7", &[&format!("slot:{long}"), "1|u"])) {
                Ok(AfterPage::Page { reader: next, .. }) => reader = next,
                Ok(AfterPage::End(_)) => panic!("a page follows"),
                Err(error) => return error.to_string(),
            }
        }
        panic!("{} bytes were kept", reader.bytes);
    }
}
