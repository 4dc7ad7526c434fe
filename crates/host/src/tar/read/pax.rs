//! Records of extended headers: `LENGTH KEY=VALUE\n`, where the length includes the whole record.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use obento_base::Timestamp;
use obento_base::wire::to_u64;

use crate::{Xattr, base64};

/// The records for a member. The later of two records with one key is used. Those of old sparse files repeat,
/// and are stored in order.
#[derive(Clone, Default)]
pub(super) struct PaxRecords {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// `GNU.sparse.offset` and `GNU.sparse.numbytes`, in order.
    pub runs: Vec<(bool, Vec<u8>)>,
    bytes: usize,
}

impl PaxRecords {
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Adds the records in `bytes`. An empty value removes an earlier record.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() && bytes.iter().any(|&byte| byte != 0) {
            let (record, rest) =
                split(bytes).ok_or("an extended header contains a record with a wrong length")?;
            let equals = record.iter().position(|&byte| byte == b'=');
            let equals = equals.ok_or("an extended header contains a record without `=`")?;
            let (key, value) =
                (record.get(..equals).unwrap_or_default(), record.get(equals + 1..).unwrap_or_default());
            match key {
                b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                    self.runs.push((key.ends_with(b"offset"), value.to_vec()));
                    self.bytes += value.len().max(16);
                }
                _ => {
                    let old = self.values.insert(key.to_vec(), value.to_vec());
                    self.bytes -= old.map_or(0, |old| key.len() + old.len());
                    self.bytes += key.len() + value.len();
                }
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Returns these records, overridden by `own`.
    fn with(&self, own: &Self) -> Self {
        let mut values = self.values.clone();
        values.extend(own.values.iter().map(|(key, value)| (key.clone(), value.clone())));
        Self { values, ..Self::default() }
    }

    /// Returns the number of bytes of the records that the file system needs for a member: not those of comments.
    fn bytes_of_member(&self) -> u64 {
        let values = self.values.iter().filter(|(key, _)| *key != b"comment");
        values.map(|(key, value)| to_u64(key.len() + value.len())).sum()
    }

    fn has_xattrs(&self) -> bool {
        self.values.keys().any(|key| is_attribute(key))
    }

    fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key.as_bytes()).map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    /// Returns extended attributes in the records of any archiver.
    fn xattrs(&self) -> Vec<Xattr> {
        let mut xattrs = BTreeMap::new();
        for (key, value) in &self.values {
            if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.")
                && let Some(value) = base64::decode(value)
            {
                xattrs.insert(unescaped(name).into_owned(), value);
            }
        }
        if let Some(label) = self.get("RHT.security.selinux") {
            xattrs.insert(b"security.selinux".to_vec(), [label, b"\0"].concat());
        }
        for (key, name) in super::acl::ACL_WORDS {
            let Some(words) = std::str::from_utf8(key).ok().and_then(|key| self.get(key)) else { continue };
            match super::acl::from_text(words) {
                Some(value) => xattrs.insert(name.into(), value),
                // A caller that can resolve the names converts it to the attribute.
                None => xattrs.insert(key.into(), words.into()),
            };
        }
        // These records contain the attribute itself.
        for (key, value) in &self.values {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                xattrs.insert(unescaped(name).into_owned(), value.clone());
            }
        }
        xattrs.into_iter().map(|(name, value)| Xattr { name, value }).collect()
    }
}

/// Returns whether a record with this key is an extended attribute.
fn is_attribute(key: &[u8]) -> bool {
    let prefixes: [&[u8]; 2] = [b"LIBARCHIVE.xattr.", b"SCHILY.xattr."];
    let is_list = || super::acl::ACL_WORDS.iter().any(|(words, _)| *words == key);
    key == b"RHT.security.selinux" || prefixes.iter().any(|prefix| key.starts_with(prefix)) || is_list()
}

/// The records for all later members.
#[derive(Clone, Default)]
pub(super) struct GlobalRecords {
    records: PaxRecords,
    /// Decoded once: an archive may have millions of members.
    decoded: OnceLock<Decoded>,
}

#[derive(Clone)]
struct Decoded {
    xattrs: Arc<[Xattr]>,
    /// The bytes that each member has in addition to those of its own headers.
    repeated: u64,
}

impl GlobalRecords {
    /// Adds the records in `bytes`.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.decoded = OnceLock::new();
        self.records.read(bytes)
    }

    /// Returns the number of bytes of the records.
    pub fn bytes(&self) -> usize {
        self.records.bytes
    }

    fn decoded(&self) -> &Decoded {
        self.decoded.get_or_init(|| Decoded {
            xattrs: self.records.xattrs().into(),
            repeated: self.records.bytes_of_member(),
        })
    }
}

/// The records of a member, which override the global ones.
pub(super) struct MemberRecords {
    pub own: PaxRecords,
    pub global: Arc<GlobalRecords>,
}

impl MemberRecords {
    /// Returns a value. An empty one removes the global one.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        match self.own.values.contains_key(key.as_bytes()) {
            true => self.own.get(key),
            false => self.global.records.get(key),
        }
    }

    /// Returns a decimal number. Returns `Some(None)` if the record exists and is not a number.
    pub fn number(&self, key: &str) -> Option<Option<u64>> {
        self.get(key).map(decimal)
    }

    /// Returns seconds since 1970 with a fraction.
    pub fn time(&self, key: &str) -> Option<Timestamp> {
        time(self.get(key)?)
    }

    /// Returns extended attributes in the records of any archiver. Members without own ones share one set.
    pub fn xattrs(&self) -> Arc<[Xattr]> {
        match self.own.has_xattrs() {
            true => self.global.records.with(&self.own).xattrs().into(),
            false => self.global.decoded().xattrs.clone(),
        }
    }

    /// Returns the bytes of the global records, which the member has in addition to those of its own headers.
    pub fn repeated(&self) -> u64 {
        self.global.decoded().repeated
    }
}

/// Returns the first record without its length and line feed, and the rest.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|&byte| byte == b' ')?;
    let len = usize::try_from(decimal(bytes.get(..space)?)?).ok()?;
    let record = bytes.get(space + 1..len.checked_sub(1)?)?;
    (bytes.get(len - 1) == Some(&b'\n')).then(|| (record, bytes.get(len..).unwrap_or_default()))
}

/// Parses a number of decimal digits only.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, &digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add((digit - b'0').into()),
        _ => None,
    })
}

fn time(text: &[u8]) -> Option<Timestamp> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let secs = i64::try_from(decimal(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().chain(std::iter::repeat(&b'0')).take(9);
    let nanos = digits.fold(0_u32, |nanos, &digit| nanos * 10 + u32::from(digit - b'0'));
    Some(match (is_negative, nanos) {
        (false, _) => Timestamp::new(secs, nanos),
        (true, 0) => Timestamp::new(-secs, 0),
        // A negative decimal fraction counts down from 0, and the nanoseconds of a timestamp count up.
        (true, _) => Timestamp::new(-secs - 1, 1_000_000_000 - nanos),
    })
}

/// Decodes `%3D` for `=` and similar sequences.
fn unescaped(name: &[u8]) -> Cow<'_, [u8]> {
    if !name.contains(&b'%') {
        return Cow::Borrowed(name);
    }
    let (mut plain, mut rest) = (Vec::with_capacity(name.len()), name);
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, escaped) {
            (b'%', Some(escaped)) => {
                plain.push(escaped);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bytes_and_a_record_of_a_wrong_length_is_refused() {
        let mut records = PaxRecords::default();
        records.read(b"16 a=1\n2=3\n4567\n8 b=\xff\x00 \n").unwrap();
        assert_eq!((records.get("a"), records.get("b")), (Some(&b"1\n2=3\n4567"[..]), Some(&b"\xff\0 "[..])));
        for bad in ["99 a=1\n", "5 a=1\n", "x a=1\n", "6 a1\n\n", "0 a=1\n", "18446744073709551615 a=1\n"] {
            assert!(PaxRecords::default().read(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_before_1970_round_to_the_past() {
        assert_eq!(time(b"1700000000.12"), Some(Timestamp::new(1_700_000_000, 120_000_000)));
        assert_eq!(time(b"-4.000000001"), Some(Timestamp::new(-5, 999_999_999)));
        assert_eq!(time(b"-5"), Some(Timestamp::new(-5, 0)));
        assert_eq!(time(b"1.1234567899"), Some(Timestamp::new(1, 123_456_789)));
        assert_eq!((time(b""), time(b"1.x"), time(b"--1")), (None, None, None));
    }

    #[test]
    fn attributes_of_three_archivers_are_one() {
        let mut records = PaxRecords::default();
        let mut add = |key: &str, value: &[u8]| drop(records.values.insert(key.into(), value.to_vec()));
        add("SCHILY.xattr.user.a%3Db", b"1\0");
        add("LIBARCHIVE.xattr.user.c%20d", b"AP8q");
        add("RHT.security.selinux", b"label");
        let names: Vec<_> = records.xattrs().into_iter().map(|x| (x.name, x.value)).collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b"security.selinux", b"label\0"), (b"user.a=b", b"1\0"), (b"user.c d", b"\0\xff*")];
        assert_eq!(names, expected.map(|(name, value)| (name.to_vec(), value.to_vec())));
    }
}
