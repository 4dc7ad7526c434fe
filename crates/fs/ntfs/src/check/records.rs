//! The records of the table: their attributes, and the clusters of those.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Ino};

use super::{Issue, Run};
use crate::attribute::{Attribute, Body};
use crate::data::stream::Stream;
use crate::layout::raw::{kind, record, record_of};
use crate::mft::{File, Record, Value};

/// Name of the stream of `$BadClus` that spans the volume, in UTF-16.
const BAD: &[u8] = b"$\0B\0a\0d\0";

impl Run<'_> {
    /// Checks all records.
    pub(super) fn records(&mut self) {
        let total = self.names.len();
        let bits = self.record_bits();
        for number in 0..obento_base::wire::to_u64(total) {
            self.progress("records", number, obento_base::wire::to_u64(total));
            let bit = bits.get(to_usize(number >> 3)).copied().unwrap_or(0);
            let bit = bit.checked_shr(u32::try_from(number & 7).unwrap_or(0)).unwrap_or(0) & 1;
            let found = self.volume.mft().record(number);
            let is_used = matches!(&found, Ok(found) if found.is_used());
            match &found {
                Err(Error::Stale) | Ok(_) => {
                    if u8::from(is_used) != bit && !is_reserved(number) {
                        self.found(&Issue::RecordBitmap {
                            ino: number,
                            found: bit,
                            expected: is_used.into(),
                        });
                    }
                }
                // A free record may contain anything.
                Err(_) if bit == 0 => {}
                Err(why) => self.found(&Issue::Record { ino: number, why: *why }),
            }
            if let Ok(found) = found
                && found.is_used()
            {
                self.report.inodes.0 = self.report.inodes.0.saturating_add(u64::from(found.is_base()));
                self.record(&found);
            }
        }
        self.report.inodes.1 = obento_base::wire::to_u64(total);
    }

    /// Returns the bitmap of the table.
    fn record_bits(&mut self) -> Vec<u8> {
        let max = obento_base::wire::to_u64(self.names.len()).div_ceil(8).saturating_add(1 << 20);
        let volume = &self.volume;
        let bits = volume.mft().file(Ino(record::MFT)).and_then(|file| {
            let value = file.value(volume.mft(), kind::BITMAP, &[])?;
            let value = value.ok_or_else(|| file.base.field("Bitmap", 0, 0))?;
            volume.read_value(Ino(record::MFT), value, max)
        });
        bits.unwrap_or_else(|why| {
            self.found(&Issue::Tables { why });
            Vec::new()
        })
    }

    fn record(&mut self, found: &Record) {
        if !found.is_base() {
            let base = record_of(found.header().base.get());
            let file = self.volume.mft().file(Ino(base));
            // A base record that is damaged is reported by itself.
            let is_listed = |file: &File| file.others.iter().any(|other| other.number == found.number);
            if matches!(&file, Err(Error::Stale)) || file.is_ok_and(|file| !is_listed(&file)) {
                self.found(&Issue::OrphanRecord { ino: found.number, base });
            }
            return;
        }
        match self.volume.mft().file(Ino(found.number)) {
            Ok(file) => {
                if let Err(why) = self.file(&file) {
                    self.found(&Issue::Record { ino: found.number, why });
                }
            }
            Err(why) => self.found(&Issue::Record { ino: found.number, why }),
        }
    }

    fn file(&mut self, file: &File) -> Result<(), Error> {
        let (mut names, mut short) = (0_u16, 0_u16);
        for attribute in file.attributes() {
            let attribute = attribute?;
            if attribute.kind == kind::FILE_NAME {
                let name = attribute.resident().and_then(crate::attribute::name::FileName::decode);
                let name = name.ok_or_else(|| file.base.field("FileName", attribute.offset, 0))?;
                names = names.saturating_add(1);
                short = short.saturating_add(name.is_short().into());
            }
            match attribute.body {
                Body::NonResident(part) if part.lowest == 0 => self.stream(file, &attribute)?,
                _ => {}
            }
        }
        if let Some((known, _)) = self.names.get_mut(to_usize(file.base.number)) {
            *known = names;
        }
        let links = file.base.header().link_count.get();
        // Some writers count short names, others do not.
        let is_right = links == names || links == names.saturating_sub(short);
        if !is_right && file.base.number >= record::FIRST_USER {
            self.found(&Issue::LinkCount { ino: file.base.number, found: links, expected: names });
        }
        Ok(())
    }

    /// Checks the sizes and claims the clusters of a value.
    fn stream(&mut self, file: &File, attribute: &Attribute<'_>) -> Result<(), Error> {
        let found = if attribute.kind == kind::ATTRIBUTE_LIST {
            // The list itself is in the base record.
            let mut stream = Stream::default();
            stream.append(&file.base, attribute, self.volume.geometry())?;
            Some(Value::Stream(alloc::sync::Arc::new(stream)))
        } else {
            file.value(self.volume.mft(), attribute.kind, attribute.name)?
        };
        let Some(Value::Stream(stream)) = found else { return Ok(()) };
        let (ino, attribute_name) = (file.base.number, kind::name(attribute.kind));
        let is_bad = ino == record::BAD_CLUSTERS && attribute.name == BAD;
        let clusters = stream.runs.end();
        if let Some((field, found)) = stream.sizes.wrong(clusters, self.volume.geometry().cluster_size)
            && !is_bad
        {
            self.found(&Issue::Size { ino, attribute: attribute_name, field, found, clusters });
        }
        for run in stream.runs.iter() {
            let Some(lcn) = run.lcn else { continue };
            if let Some(cluster) = self.claims.claim(lcn, run.len) {
                let clusters = run.len;
                self.found(&Issue::CrossLink { ino, attribute: attribute_name, cluster, clusters });
            }
        }
        Ok(())
    }
}

/// Returns whether a record is reserved: formatters differ in whether it is in use.
fn is_reserved(number: u64) -> bool {
    (12..24).contains(&number)
}
