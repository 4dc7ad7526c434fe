//! A volume to damage, and its check.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use obento_block::BlockDevice;
use obento_driver::{CheckOptions, Driver as _, Finding};
use obento_env::NO_CLOCK;
use obento_ntfs::NtfsDriver;

use super::FORMAT;

/// Returns the findings of the check.
pub fn check(device: Arc<dyn BlockDevice>) -> Vec<Finding> {
    let driver = NtfsDriver::default();
    let mut found = Vec::new();
    let options = CheckOptions::new(Arc::new(NO_CLOCK));
    driver.check().unwrap().check(device, &options, &mut found).expect("it can be checked");
    found
}

/// Where the records of a volume with clusters of 4 KiB are, and its bytes.
pub struct Victim(pub Vec<u8>);

impl Victim {
    pub fn new() -> Option<Self> {
        FORMAT.filled("4k").map(|bytes| Self(bytes.to_vec()))
    }

    pub fn record(&self, number: usize) -> usize {
        4 * 4096 + number * 1024
    }

    /// Returns the place of the copy of a record in `$MFTMirr`.
    pub fn mirror(&self, number: usize) -> usize {
        let cluster = u64::from_le_bytes(self.0[56..64].try_into().expect("eight bytes"));
        cluster as usize * 4096 + number * 1024
    }

    /// Returns the place of `bytes` in a record.
    pub fn find(&self, number: usize, bytes: &[u8]) -> usize {
        self.find_from(self.record(number), bytes)
    }

    /// Returns the place of `bytes` in the record at `start`.
    pub fn find_from(&self, start: usize, bytes: &[u8]) -> usize {
        (start..start + 1024).find(|&at| self.0[at..].starts_with(bytes)).expect("it is in the record")
    }

    /// Returns the record of the file that has a name in ASCII.
    pub fn record_of(&self, name: &str) -> usize {
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let has_it = |number: &usize| {
            let start = self.record(*number);
            let record = &self.0[start..start + 1024];
            record.starts_with(b"FILE") && record.windows(units.len()).any(|window| window == units)
        };
        (24..).find(has_it).expect("it was made")
    }

    /// Returns the place of an attribute in a record.
    pub fn attribute(&self, number: usize, kind: u32) -> usize {
        let word = |at: usize| u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"));
        let mut at = self.record(number);
        at += usize::from(self.0[at + 20]);
        while word(at) != kind {
            assert!(word(at) != u32::MAX, "record {number} has no attribute {kind:x}");
            at += word(at + 4) as usize;
        }
        at
    }

    /// Returns the place of the runs of the data of a file.
    pub fn runs(&self, number: usize) -> usize {
        let start = self.attribute(number, 0x80);
        start + usize::from(self.0[start + 32])
    }

    /// Returns the place of the first cluster of the data of a file.
    pub fn clusters_of(&self, number: usize) -> usize {
        let runs = self.runs(number);
        let (lengths, places) = (self.0[runs] & 15, self.0[runs] >> 4);
        let place = &self.0[runs + 1 + usize::from(lengths)..][..usize::from(places)];
        place.iter().rev().fold(0, |lcn, &byte| lcn << 8 | usize::from(byte)) * 4096
    }
}
