//! A reader of tar streams for comparisons: ustar, GNU long names, pax records.
//!
//! The crate `tar` reads pax records line by line, but an attribute's value may contain a line feed.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context as _, Result, bail, ensure};

/// Extended header records, by key.
pub type Pax = BTreeMap<String, Vec<u8>>;

/// One member: its header and the records before it, with the resolved path and link target.
pub struct Member {
    /// The header of 512 bytes.
    header: [u8; 512],
    /// The records for this member.
    pub pax: Pax,
    /// Full path.
    pub path: Vec<u8>,
    /// Full link target; empty if the member is not a link.
    pub link: Vec<u8>,
    /// The number of following data bytes.
    pub len: u64,
}

impl Member {
    /// Returns the type flag: `b'0'` for a file, `b'5'` for a directory, ...
    pub fn flag(&self) -> u8 {
        self.header[156]
    }

    /// Returns a numeric field of the header.
    fn number(&self, range: std::ops::Range<usize>) -> Result<u64> {
        let field = &self.header[range];
        if field[0] & 0x80 != 0 {
            // GNU's base-256, big-endian.
            return Ok(field[1..].iter().fold(0, |value, &byte| value << 8 | u64::from(byte)));
        }
        let text = std::str::from_utf8(field)?.trim_matches(['\0', ' ']);
        if text.is_empty() { Ok(0) } else { Ok(u64::from_str_radix(text, 8)?) }
    }

    fn pax_or(&self, key: &str, range: std::ops::Range<usize>) -> Result<u64> {
        match self.pax.get(key) {
            Some(value) => Ok(std::str::from_utf8(value)?.parse()?),
            None => self.number(range),
        }
    }

    /// Returns the permission bits.
    pub fn mode(&self) -> Result<u32> {
        Ok(u32::try_from(self.number(100..108)?)? & 0o7777)
    }

    /// Returns owner and group.
    pub fn owner(&self) -> Result<(u64, u64)> {
        Ok((self.pax_or("uid", 108..116)?, self.pax_or("gid", 116..124)?))
    }

    /// Returns the whole seconds of the last change, from the header.
    pub fn mtime(&self) -> Result<u64> {
        self.number(136..148)
    }

    /// Returns the major and minor number of a device.
    pub fn device(&self) -> Result<(u64, u64)> {
        Ok((self.number(329..337)?, self.number(337..345)?))
    }
}

/// Calls `each` with every member and a reader of its data. Unread data is skipped.
pub fn members(
    mut stream: impl Read,
    mut each: impl FnMut(&Member, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let mut next = Pending::default();
    loop {
        let mut header = [0; 512];
        stream.read_exact(&mut header).context("the archive ends without its two blocks of zeros")?;
        if header.iter().all(|&b| b == 0) {
            return Ok(());
        }
        check_sum(&header)?;
        let member = std::mem::take(&mut next).member(header)?;
        let padded = member.len.next_multiple_of(512);
        let mut data = (&mut stream).take(member.len);
        match member.flag() {
            b'x' => next = Pending { pax: records(&read_all(&mut data)?)?, ..next },
            b'g' => bail!("a global extended header"),
            b'L' => next = Pending { path: Some(text(&read_all(&mut data)?).to_vec()), ..next },
            b'K' => next = Pending { link: Some(text(&read_all(&mut data)?).to_vec()), ..next },
            _ => each(&member, &mut data)
                .with_context(|| String::from_utf8_lossy(&member.path).into_owned())?,
        }
        std::io::copy(&mut data, &mut std::io::sink())?;
        std::io::copy(&mut (&mut stream).take(padded - member.len), &mut std::io::sink())?;
    }
}

/// The fields of a member from preceding headers.
#[derive(Default)]
struct Pending {
    pax: Pax,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl Pending {
    fn member(self, header: [u8; 512]) -> Result<Member> {
        let prefix = if &header[257..263] == b"ustar\0" { text(&header[345..500]) } else { &[] };
        let slash: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
        let short = [prefix, slash, text(&header[..100])].concat();
        let from_pax = |key: &str| self.pax.get(key).cloned();
        let path = from_pax("GNU.sparse.name").or_else(|| from_pax("path")).or(self.path).unwrap_or(short);
        let link = from_pax("linkpath").or(self.link).unwrap_or_else(|| text(&header[157..257]).to_vec());
        let mut member = Member { header, path, link, len: 0, pax: self.pax };
        let carries_data = !matches!(member.flag(), b'1'..=b'6');
        member.len = if carries_data { member.pax_or("size", 124..136)? } else { 0 };
        Ok(member)
    }
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|&b| b == 0).next().unwrap_or_default()
}

fn read_all(data: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    data.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check_sum(header: &[u8; 512]) -> Result<()> {
    let stored = u64::from_str_radix(std::str::from_utf8(&header[148..156])?.trim_matches(['\0', ' ']), 8)?;
    let bytes =
        header.iter().enumerate().map(|(at, &b)| if (148..156).contains(&at) { 0x20 } else { u64::from(b) });
    ensure!(bytes.sum::<u64>() == stored, "a header's checksum is wrong");
    Ok(())
}

/// Parses `LENGTH KEY=VALUE\n`, where the length is that of the whole record (POSIX pax, "pax Extended Header").
fn records(mut bytes: &[u8]) -> Result<Pax> {
    let mut pax = Pax::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|&b| b == b' ').context("a pax record without a length")?;
        let len: usize = std::str::from_utf8(&bytes[..space])?.parse()?;
        ensure!(
            len > space + 1 && len <= bytes.len() && bytes[len - 1] == b'\n',
            "a pax record of a wrong length"
        );
        let record = &bytes[space + 1..len - 1];
        let equals = record.iter().position(|&b| b == b'=').context("a pax record without `=`")?;
        pax.insert(std::str::from_utf8(&record[..equals])?.to_owned(), record[equals + 1..].to_vec());
        bytes = &bytes[len..];
    }
    Ok(pax)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_may_hold_line_feeds_and_equal_signs() {
        let pax = records(b"16 a=1\n2=3\n4567\n8 b=\xff\x00 \n").unwrap();
        assert_eq!(pax["a"], b"1\n2=3\n4567");
        assert_eq!(pax["b"], b"\xff\x00 ");
        assert!(records(b"99 a=1\n").is_err() && records(b"5 a=1\n").is_err());
    }
}
