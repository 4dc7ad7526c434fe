//! Records of an extended header: `LENGTH KEYWORD=VALUE\n`, where the length includes itself.

use obento_base::Timestamp;

/// The records of one extended header.
#[derive(Default)]
pub(super) struct RecordsBuilder(Vec<u8>);

impl RecordsBuilder {
    pub fn add(&mut self, keyword: &str, value: &[u8]) {
        self.add_raw(keyword.as_bytes(), value);
    }

    pub fn add_raw(&mut self, keyword: &[u8], value: &[u8]) {
        // A space, `=` and a newline beside keyword and value.
        let rest = keyword.len() + value.len() + 3;
        let mut total = rest;
        while total != rest + decimal_digits(total) {
            total = rest + decimal_digits(total);
        }
        self.0.extend(total.to_string().bytes());
        self.0.push(b' ');
        self.0.extend(keyword);
        self.0.push(b'=');
        self.0.extend(value);
        self.0.push(b'\n');
    }

    pub fn add_number(&mut self, keyword: &str, value: u64) {
        self.add(keyword, value.to_string().as_bytes());
    }

    pub fn add_time(&mut self, keyword: &str, time: Timestamp) {
        self.add(keyword, seconds(time).as_bytes());
    }

    /// Adds an extended attribute. `%` and `=` in its name are escaped as in GNU tar.
    pub fn add_xattr(&mut self, name: &[u8], value: &[u8]) {
        let mut keyword = b"SCHILY.xattr.".to_vec();
        for &byte in name {
            match byte {
                b'%' => keyword.extend(b"%25"),
                b'=' => keyword.extend(b"%3D"),
                byte => keyword.push(byte),
            }
        }
        self.add_raw(&keyword, value);
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

fn decimal_digits(number: usize) -> usize {
    number.to_string().len()
}

/// Formats decimal seconds since 1970 without trailing zeros.
fn seconds(time: Timestamp) -> String {
    let (mut whole, mut nanos) = (i128::from(time.secs()), time.nanos());
    let mut sign = "";
    if whole < 0 {
        sign = "-";
        // Timestamps round down, decimal fractions round towards 0.
        if nanos > 0 {
            whole += 1;
            nanos = 1_000_000_000 - nanos;
        }
    }
    let text = format!("{sign}{}.{nanos:09}", whole.unsigned_abs());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        let mut records = RecordsBuilder::default();
        records.add("path", &[b'x'; 90]);
        records.add("path", &[b'x'; 91]);
        records.add("a", b"b");
        let bytes = records.into_bytes();
        assert!(bytes.starts_with(b"99 path=xxx") && bytes.ends_with(b"x\n6 a=b\n"));
        assert_eq!((bytes.len(), &bytes[99..108]), (99 + 101 + 6, &b"101 path="[..]));
    }

    #[test]
    fn times_before_1970_count_back_from_it() {
        let text = |secs, nanos| seconds(Timestamp::new(secs, nanos));
        assert_eq!(text(0, 0), "0");
        assert_eq!(text(1_700_000_000, 120_000_000), "1700000000.12");
        assert_eq!(text(-5, 0), "-5");
        assert_eq!(text(-5, 999_999_999), "-4.000000001");
        assert_eq!(text(-1, 500_000_000), "-0.5");
        assert_eq!(text(100, 0), "100");
    }
}
