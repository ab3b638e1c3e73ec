//! The time zone of this host, as the cron daemon reads it: the variable TZ, or `/etc/localtime`.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
};

use jiff::tz::TimeZone;
use thiserror::Error;

/// The time zone of a host where TZ is not set.
const LOCAL: &str = "/etc/localtime";
/// The folder with the time zones.
const ZONES: &str = "/usr/share/zoneinfo";
/// The greatest size of a time zone; the largest has about 4 KiB.
const LARGEST: u64 = 256 * 1024;

/// The local time zone is not known.
#[derive(Debug, Error)]
pub(crate) enum ZoneError {
    #[error("TZ {value:?} is not a time zone: write a name such as Europe/Berlin, or UTC0; {why}")]
    Variable { value: OsString, why: String },
    #[error("the time zone of this host, {LOCAL}, cannot be read: {why}; set the variable TZ")]
    Local { why: String },
}

/// Returns the local time zone, from the value of TZ. A host without TZ and without `/etc/localtime` has UTC.
///
/// # Errors
/// Returns an error if the zone cannot be read: a guess would be another slot on this host than on the others.
pub(crate) fn local_zone(variable: Option<OsString>) -> Result<TimeZone, ZoneError> {
    let Some(value) = variable else {
        return match read(Path::new(LOCAL)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(TimeZone::UTC),
            Err(error) => Err(ZoneError::Local {
                why: error.to_string(),
            }),
            Ok(zone) => Ok(zone),
        };
    };
    named(&value).map_err(|why| ZoneError::Variable { value, why })
}

/// Returns the zone of a value of TZ: a name or a path, after an optional colon, or a rule as POSIX defines it.
fn named(value: &OsString) -> Result<TimeZone, String> {
    let text = value.to_str().ok_or("it is not UTF-8")?;
    let name = text.strip_prefix(':').unwrap_or(text);
    // As in libc, an empty value is UTC.
    if ["", "UTC"].contains(&name) {
        return Ok(TimeZone::UTC);
    }
    let path = Path::new(name);
    let file = if path.is_absolute() {
        path.to_owned()
    } else if path
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)))
    {
        PathBuf::from(ZONES).join(path)
    } else {
        return Err("the name leads out of the folder of the time zones".into());
    };
    read(&file).or_else(|error| {
        TimeZone::posix(text).map_err(|_| format!("{} cannot be read: {error}", file.display()))
    })
}

fn read(file: &Path) -> io::Result<TimeZone> {
    let mut bytes = Vec::new();
    let opened = File::open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidData, "not a file"));
    }
    opened.take(LARGEST).read_to_end(&mut bytes)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    TimeZone::tzif(&name, &bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn shown(value: &str) -> Option<String> {
        let zone = local_zone(Some(value.into())).ok()?;
        let summer = Timestamp::from_second(1_780_000_000).unwrap();
        Some(zone.to_datetime(summer).to_string())
    }

    #[test]
    fn zone_of_the_variable_is_a_rule_a_name_or_a_path() {
        let utc = Some("2026-05-28T20:26:40".to_owned());
        assert_eq!(
            (shown(""), shown("UTC"), shown("UTC0")),
            (utc.clone(), utc.clone(), utc)
        );
        let berlin = Some("2026-05-28T22:26:40".to_owned());
        assert_eq!(shown("CET-1CEST,M3.5.0,M10.5.0/3"), berlin);
        if Path::new(ZONES).join("Europe/Berlin").exists() {
            for value in [
                "Europe/Berlin",
                ":Europe/Berlin",
                "/usr/share/zoneinfo/Europe/Berlin",
            ] {
                assert_eq!(shown(value), berlin, "{value}");
            }
        }
        for value in [
            "Europe/Atlantis",
            "../../etc/passwd",
            "/etc/passwd",
            "/dev/zero",
            "x",
        ] {
            let error = local_zone(Some(value.into())).unwrap_err().to_string();
            assert!(
                error.contains(value) && error.contains("Europe/Berlin"),
                "{error}"
            );
        }
    }
}
