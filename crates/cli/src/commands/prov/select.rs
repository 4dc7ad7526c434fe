//! The records that the user asked for.

use std::str::FromStr;

use obento::base::Timestamp;
use obento::provenance::{Actor, Entry, IndexedLog, Performer};

use crate::format::date;
use crate::format::time::Clock;
use crate::report::Report;

/// A process, a program or a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    Process(u32),
    Program(String),
    User(u32),
}

impl FromStr for Who {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(uid) = text.strip_prefix("uid=") {
            return uid.parse().map(Self::User).map_err(|_| format!("'{uid}' is not a user ID"));
        }
        if text.is_empty() {
            return Err("expected a process ID, the name of a program, or uid=UID".into());
        }
        Ok(text.parse().map_or_else(|_| Self::Program(text.into()), Self::Process))
    }
}

impl Who {
    fn is(&self, actor: &Actor) -> bool {
        match self {
            Self::Process(pid) => actor.pid == *pid,
            Self::Program(name) => actor.comm() == recorded(name),
            Self::User(uid) => actor.uid == *uid,
        }
    }

    fn performer(&self) -> Performer<'_> {
        match self {
            Self::Process(pid) => Performer::Process(*pid),
            Self::Program(name) => Performer::Program(recorded(name)),
            Self::User(uid) => Performer::User(*uid),
        }
    }
}

/// Returns a name of a program as it is recorded. The kernel cuts names to 15 bytes.
fn recorded(name: &str) -> &[u8] {
    name.as_bytes().get(..15).unwrap_or(name.as_bytes())
}

/// Conditions for records.
pub struct Selection {
    by: Option<Who>,
    /// Microseconds since 1970.
    since: Option<i64>,
    clock: Clock,
    zone: jiff::tz::TimeZone,
}

impl Selection {
    /// Parses the conditions.
    pub fn new(by: Option<Who>, since: Option<&str>) -> Result<Self, Report> {
        let (clock, zone) = (Clock::system(), jiff::tz::TimeZone::system());
        let mut selection = Self { by, since: None, clock, zone };
        selection.since = since.map(|text| selection.time(text)).transpose()?;
        Ok(selection)
    }

    fn time(&self, text: &str) -> Result<i64, Report> {
        let time = date::parse(text, self.clock.now(), &self.zone);
        time.map(micros)
            .ok_or_else(|| Report::on("invalid time", text, "not a date such as '2026-11-21 13:48'"))
    }

    /// Returns whether the record of `actor` is selected. A record without an actor is selected unless an actor is named.
    pub fn includes(&self, entry: &Entry<'_>, actor: Option<&Actor>) -> bool {
        let is_late = self.since.is_none_or(|since| entry.time >= since);
        is_late && self.by.as_ref().is_none_or(|who| actor.is_some_and(|actor| who.is(actor)))
    }

    /// Returns whether the segment at a position of the log may contain records that are selected.
    pub fn may_include(&self, log: &IndexedLog, at: usize) -> bool {
        let latest = log.summary(at).map_or(i64::MIN, |summary| summary.latest);
        self.since.is_none_or(|since| latest >= since)
            && self.by.as_ref().is_none_or(|who| log.may_contain(at, who.performer()))
    }

    /// Returns the clock in the time zone of the user.
    pub fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// Returns the clock in the time zone of the user.
    pub fn into_clock(self) -> Clock {
        self.clock
    }
}

/// Returns a time in microseconds since 1970.
fn micros(time: Timestamp) -> i64 {
    time.secs().saturating_mul(1_000_000).saturating_add((time.nanos() / 1000).into())
}

/// Returns the time of a record.
pub fn timestamp(micros: i64) -> Timestamp {
    let nanos = u32::try_from(micros.rem_euclid(1_000_000)).unwrap_or(0).saturating_mul(1000);
    Timestamp::new(micros.div_euclid(1_000_000), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_process_and_a_word_is_a_program() {
        assert_eq!("12".parse(), Ok(Who::Process(12)));
        assert_eq!("uid=7".parse(), Ok(Who::User(7)));
        assert_eq!("gcc".parse(), Ok(Who::Program("gcc".into())));
        assert!("uid=me".parse::<Who>().is_err() && "".parse::<Who>().is_err());
        let actor = Actor { pid: 3, uid: 7, ..Actor::default() }.with_comm(b"a-long-program-name");
        assert!(
            Who::Program("a-long-program-name".into()).is(&Actor::default().with_comm(b"a-long-program-"))
        );
        assert!(Who::User(7).is(&actor) && Who::Process(3).is(&actor) && !Who::Process(4).is(&actor));
    }

    #[test]
    fn times_before_1970_have_positive_nanoseconds() {
        for micros_before in [-1, 0, 1, 1_500_000, -1_500_000] {
            assert_eq!(micros(timestamp(micros_before)), micros_before);
        }
    }
}
