//! Checks the partition table of an image.

use obento_driver::{CheckObserver, CheckReport, FieldValue, Finding, Severity};

use super::TableNotice;
use crate::Image;

impl TableNotice {
    /// Returns whether a structure of the table is damaged. [`check_table`] then reports a finding.
    pub fn is_damage(&self) -> bool {
        self.code().is_some()
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            Self::Backup(_) => Some("table-primary"),
            Self::DamagedEntries(_) => Some("table-entries"),
            Self::OnlyMbr(_) => Some("table-lost"),
            Self::BadEntry { .. } => Some("table-entry"),
            Self::BrokenChain { .. } | Self::CircularChain { .. } => Some("table-chain"),
            // The table is as it was written.
            Self::Truncated { .. } | Self::LongChain { .. } => None,
        }
    }

    fn finding(&self, code: &'static str) -> Finding {
        let fields = match self {
            Self::BadEntry { number } => vec![("number", FieldValue::Number((*number).into()))],
            Self::BrokenChain { after, .. } | Self::CircularChain { after } => {
                vec![("after", FieldValue::Number((*after).into()))]
            }
            _ => Vec::new(),
        };
        Finding { code, severity: Severity::Damage, fields, text: self.to_string(), repaired: false }
    }
}

/// Checks the partition table of `image`, if the image has one. Passes a finding to `observer` for each damaged
/// structure. Returns the number of findings; the other values of the report are 0.
///
/// Nothing is repaired: the second copy of a GPT can be that of an older table, and another program may use the end of
/// a longer disk. [`TableEditor::write`](super::TableEditor::write) writes both copies again.
pub fn check_table(image: &Image, observer: &mut dyn CheckObserver) -> CheckReport {
    let mut report = CheckReport::default();
    let notices = image.table().map_or(&[][..], |table| &table.notices);
    for notice in notices {
        let Some(code) = notice.code() else { continue };
        report.found = report.found.saturating_add(1);
        observer.found(notice.finding(code));
    }
    report
}
