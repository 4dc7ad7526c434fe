//! How drivers declare what their checks find: one list, from which the type, its stable names and its words follow.

/// Declares what can be wrong with a volume as `Issue`: documentation, fields, severity, stable name, words. With `mended by Stage;`
/// in front each severity is followed by the variant of `Stage` in which its mend comes. The crate of the caller has `alloc`.
#[macro_export]
macro_rules! issues {
    (mended by $stages:ident; $($(#[doc = $doc:literal])+ $name:ident { $($field:ident: $type:ty),* } $severity:ident $stage:ident $code:literal, $($text:expr),+;)*) => {
        $crate::issues! {
            $($(#[doc = $doc])+ $name { $($field: $type),* } $severity $code, $($text),+;)*
        }

        impl Issue {
            /// What its mend stands on.
            pub(super) fn stage(&self) -> $stages {
                match self {
                    $(Self::$name { .. } => $stages::$stage,)*
                }
            }
        }
    };
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
            pub fn severity(&self) -> $crate::Severity {
                match self {
                    $(Self::$name { .. } => $crate::Severity::$severity,)*
                }
            }

            /// It as a finding.
            pub fn finding(&self, mended: bool) -> $crate::Finding {
                $crate::Finding {
                    code: self.code(),
                    severity: self.severity(),
                    fields: self.fields(),
                    text: alloc::string::ToString::to_string(self),
                    mended,
                }
            }

            fn fields(&self) -> alloc::vec::Vec<(&'static str, $crate::FieldValue)> {
                match self {
                    $(Self::$name { $($field),* } => alloc::vec::Vec::from([$((stringify!($field), $crate::ToField::to_field($field))),*]),)*
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
