//! What checks share: whose clusters are known, and how issues are declared.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_usize;

use crate::unit::Cluster;

/// Declares what can be wrong with a volume as `Issue`: documentation, fields, severity, stable name, words.
#[macro_export]
macro_rules! issues {
    ($($(#[doc = $doc:literal])+ $name:ident { $($field:ident: $type:ty),* } $severity:ident $code:literal, $($text:expr),+;)*) => {
        /// What is wrong, and where.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "fields are named as the format names them")]
        pub enum Issue {
            $($(#[doc = $doc])+ $name { $($field: $type),* },)*
        }

        impl Issue {
            /// The stable names of all kinds, in their order.
            pub const CODES: &'static [&'static str] = &[$($code),*];

            /// Its stable name.
            pub fn code(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $code,)*
                }
            }

            /// How bad it is.
            pub fn severity(&self) -> obento_driver::Severity {
                match self {
                    $(Self::$name { .. } => obento_driver::Severity::$severity,)*
                }
            }

            /// It as a finding.
            pub fn finding(&self, mended: bool) -> obento_driver::Finding {
                obento_driver::Finding {
                    code: self.code(),
                    severity: self.severity(),
                    fields: self.fields(),
                    text: alloc::string::ToString::to_string(self),
                    mended,
                }
            }

            fn fields(&self) -> alloc::vec::Vec<(&'static str, obento_driver::FieldValue)> {
                match self {
                    $(Self::$name { $($field),* } => alloc::vec::Vec::from([$((stringify!($field), obento_driver::ToField::to_field($field))),*]),)*
                }
            }
        }

        impl core::fmt::Display for Issue {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(
                        #[allow(unused_variables, reason = "not each field is in the words")]
                        Self::$name { $($field),* } => write!(f, $($text),+),
                    )*
                }
            }
        }
    };
}

/// A bit a cluster.
#[derive(Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// None is set. Errors: NoMemory.
    pub fn new(clusters: u32) -> Result<Self> {
        let words = to_usize(u64::from(clusters).saturating_add(2).div_ceil(64));
        let mut bits = Vec::new();
        bits.try_reserve_exact(words)?;
        bits.resize(words, 0);
        Ok(Self(bits))
    }

    /// Sets that of `cluster`; answers whether it was set.
    pub fn set(&mut self, cluster: Cluster) -> bool {
        let mask = 1_u64 << (cluster.0 & 63);
        let Some(word) = self.0.get_mut(to_usize(u64::from(cluster.0 >> 6))) else { return false };
        let was_set = *word & mask != 0;
        *word |= mask;
        was_set
    }

    /// Whether that of `cluster` is set.
    pub fn has(&self, cluster: Cluster) -> bool {
        let word = self.0.get(to_usize(u64::from(cluster.0 >> 6)));
        word.is_some_and(|word| word & 1 << (cluster.0 & 63) != 0)
    }
}
