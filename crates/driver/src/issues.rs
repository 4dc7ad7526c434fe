//! Macros that declare the findings of a check, and the words in their messages. Each macro takes a list. It generates
//! an enum, and the stable names and messages of its variants.

/// Declares the enum `Issue`. Each entry of the list consists of documentation, name of the variant, fields,
/// severity, stable name and message. If the list starts with `repaired by Stage;`, each severity is followed
/// by a variant of `Stage`: the stage that repairs the issue. The calling crate must declare
/// `extern crate alloc`.
#[macro_export]
macro_rules! issues {
    (repaired by $stages:ident; $($(#[doc = $doc:literal])+ $name:ident { $($field:ident: $type:ty),* } $severity:ident $stage:ident $code:literal, $($text:expr),+;)*) => {
        $crate::issues! {
            $($(#[doc = $doc])+ $name { $($field: $type),* } $severity $code, $($text),+;)*
        }

        impl Issue {
            /// Returns the stage in which this issue is repaired.
            pub(super) fn stage(&self) -> $stages {
                match self {
                    $(Self::$name { .. } => $stages::$stage,)*
                }
            }
        }
    };
    ($($(#[doc = $doc:literal])+ $name:ident { $($field:ident: $type:ty),* } $severity:ident $code:literal, $($text:expr),+;)*) => {
        /// An inconsistency of a volume and its location.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[expect(missing_docs, reason = "fields are named as the format names them")]
        pub enum Issue {
            $($(#[doc = $doc])+ $name { $($field: $type),* },)*
        }

        impl Issue {
            /// Stable names of all kinds, in the order of declaration.
            pub const CODES: &'static [&'static str] = &[$($code),*];

            /// Returns the stable name.
            pub fn code(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $code,)*
                }
            }

            /// Returns the severity.
            pub fn severity(&self) -> $crate::Severity {
                match self {
                    $(Self::$name { .. } => $crate::Severity::$severity,)*
                }
            }

            /// Converts the issue to a finding.
            pub fn finding(&self, repaired: bool) -> $crate::Finding {
                $crate::Finding {
                    code: self.code(),
                    severity: self.severity(),
                    fields: self.fields(),
                    text: alloc::string::ToString::to_string(self),
                    repaired,
                }
            }

            fn fields(&self) -> alloc::vec::Vec<(&'static str, $crate::FieldValue)> {
                match self {
                    $(Self::$name { $($field),* } => alloc::vec::Vec::from([$((stringify!($field), $crate::ToField::to_field($field))),*]),)*
                }
            }
        }

        impl $crate::CheckIssue for Issue {
            fn severity(&self) -> $crate::Severity {
                self.severity()
            }

            fn finding(&self, repaired: bool) -> $crate::Finding {
                self.finding(repaired)
            }
        }

        impl core::fmt::Display for Issue {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(
                        #[allow(unused_variables, reason = "a message need not contain every field")]
                        Self::$name { $($field),* } => write!(f, $($text),+),
                    )*
                }
            }
        }
    };
}

/// Declares enums for words in the messages of findings: names of fields, flags, reasons. Each variant has a text,
/// which is also its value as a field of a finding.
#[macro_export]
macro_rules! finding_words {
    ($($(#[doc = $doc:literal])+ $name:ident { $($variant:ident = $text:literal),+ $(,)? })+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
            pub enum $name {
                $(
                    #[doc = concat!("`", $text, "`.")]
                    $variant,
                )+
            }

            impl $name {
                /// Returns the text.
                pub const fn text(self) -> &'static str {
                    match self {
                        $(Self::$variant => $text,)+
                    }
                }
            }

            impl core::fmt::Display for $name {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    f.write_str(self.text())
                }
            }

            impl $crate::ToField for $name {
                fn to_field(&self) -> $crate::FieldValue {
                    $crate::ToField::to_field(&self.text())
                }
            }
        )+
    };
}
