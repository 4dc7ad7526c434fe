//! Values as bytes: little-endian integers, lists after their `u32` length, enums after a byte with the number of the variant.

/// A value that is sent between host and guest.
pub trait Wire: Sized {
    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes the value from the front of `from`; `None` if these bytes are not a valid value.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// Returns the bytes of `value`.
pub fn encode(value: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// Decodes all of `bytes`.
pub fn decode<T: Wire>(mut bytes: &[u8]) -> Option<T> {
    let value = T::take(&mut bytes)?;
    bytes.is_empty().then_some(value)
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl Wire for $int {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*bytes))
            }
        }
    )*};
}
integers! { u8 u16 u32 u64 i64 }

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Some(None),
        }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        // No message has four billion elements: the area is smaller.
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let len = usize::try_from(u32::take(from)?).ok()?;
        // Each element has at least one byte, so a false length allocates nothing.
        if len > from.len() {
            return None;
        }
        (0..len).map(|_| T::take(from)).collect()
    }
}

/// A struct that is encoded field by field.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }

        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: Wire::take(from)?,)* })
            }
        }
    };
}

/// An enum that is encoded as the number of its variant and the fields of the variant.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $number:literal $variant:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty),* $(,)? },)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$variant_doc])* $variant { $($(#[$field_doc])* $field: $kind),* },)* }

        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        out.push($number);
                        $($field.put(out);)*
                    })*
                }
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                match u8::take(from)? {
                    $($number => Some(Self::$variant { $($field: Wire::take(from)?),* }),)*
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use {choice, record};
