//! Names of the attributes of partitions: those of the UEFI specification, table 5.8, and of the Discoverable Partitions
//! Specification, 3.

use obento::partition::Scheme;

const ATTRIBUTES: &[(&str, u32)] = &[
    ("required", 0),
    ("no-block-io", 1),
    ("legacy-bootable", 2),
    ("active", 2),
    ("grow-file-system", 59),
    ("read-only", 60),
    ("no-auto", 63),
];

/// Returns the bit of the attribute with this name; `bit-N` is any bit of a GPT.
pub fn bit(name: &str, scheme: Scheme) -> Option<u32> {
    let named = ATTRIBUTES.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit);
    let numbered = || name.strip_prefix("bit-")?.parse().ok().filter(|bit| *bit < 64);
    named.or_else(numbered).filter(|bit| scheme == Scheme::Gpt || *bit == 2)
}

/// Returns the hint that lists the names for a table of kind `scheme`.
pub fn known(scheme: Scheme) -> String {
    match scheme {
        Scheme::Gpt => {
            let known: Vec<&str> = ATTRIBUTES.iter().map(|(name, _)| *name).collect();
            format!("the attributes are {}, and bit-0 to bit-63", known.join(", "))
        }
        Scheme::Mbr => "the only attribute of an MBR is active".to_owned(),
    }
}

/// Returns the names of the bits that are set in `attributes`.
pub fn names(attributes: u64, scheme: Scheme) -> Vec<String> {
    let name = |bit: u32| {
        let mut named = ATTRIBUTES.iter().filter(|(_, known)| *known == bit).map(|(name, _)| *name);
        let last = if scheme == Scheme::Mbr { named.next_back() } else { named.next() };
        last.map_or_else(|| format!("bit-{bit}"), str::to_owned)
    };
    (0..64).filter(|bit| attributes & 1 << bit != 0).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_has_a_name_that_is_parsed() {
        for index in 0..64 {
            let name = names(1 << index, Scheme::Gpt);
            assert_eq!(bit(&name[0], Scheme::Gpt), Some(index), "{name:?}");
        }
        assert_eq!(names(1 << 2 | 1 << 60, Scheme::Gpt), ["legacy-bootable", "read-only"]);
        assert_eq!((bit("active", Scheme::Mbr), bit("read-only", Scheme::Mbr)), (Some(2), None));
        assert_eq!(known(Scheme::Mbr), "the only attribute of an MBR is active");
        assert!(known(Scheme::Gpt).ends_with(", no-auto, and bit-0 to bit-63"));
        assert_eq!((names(4, Scheme::Mbr), bit("bit-64", Scheme::Gpt)), (vec!["active".to_owned()], None));
    }
}
