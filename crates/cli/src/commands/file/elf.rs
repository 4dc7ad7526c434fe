//! Executables, libraries and object files.
//!
//! Source: System V ABI, "ELF Header"; elf(5).

use super::Kind;

/// Values of `e_machine`.
const MACHINES: &[(u16, &str)] = &[
    (2, "SPARC"),
    (3, "Intel 80386"),
    (8, "MIPS"),
    (20, "PowerPC"),
    (21, "64-bit PowerPC"),
    (22, "IBM S/390"),
    (40, "ARM"),
    (62, "x86-64"),
    (183, "ARM aarch64"),
    (243, "RISC-V"),
    (247, "eBPF"),
    (258, "LoongArch"),
];

/// Returns the machine of a file that starts with an ELF header.
pub fn machine_of(head: &[u8]) -> Option<String> {
    let ident = head.strip_prefix(b"\x7fELF")?;
    let bytes: [u8; 2] = head.get(18..20)?.try_into().ok()?;
    let machine = match ident.get(1)? {
        1 => u16::from_le_bytes(bytes),
        2 => u16::from_be_bytes(bytes),
        _ => return None,
    };
    let name = MACHINES.iter().find(|(known, _)| *known == machine);
    Some(name.map_or_else(|| format!("machine {machine}"), |(_, name)| (*name).to_owned()))
}

/// Describes a file that starts with an ELF header.
pub fn describe(head: &[u8]) -> Option<Kind> {
    let ident = head.strip_prefix(b"\x7fELF")?;
    let class = match ident.first()? {
        1 => "32-bit",
        2 => "64-bit",
        _ => return None,
    };
    let (order, is_little) = match ident.get(1)? {
        1 => ("LSB", true),
        2 => ("MSB", false),
        _ => return None,
    };
    let field = |at: usize| {
        let bytes: [u8; 2] = head.get(at..at + 2)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let (kind, mime) = match field(16)? {
        1 => ("relocatable", "application/x-object"),
        2 => ("executable", "application/x-executable"),
        3 => ("shared object or position-independent executable", "application/x-sharedlib"),
        4 => ("core file", "application/x-coredump"),
        _ => ("file", "application/octet-stream"),
    };
    let machine = field(18)?;
    let name = MACHINES.iter().find(|(known, _)| *known == machine);
    let name = name.map_or_else(|| format!("machine {machine}"), |(_, name)| (*name).to_owned());
    Some(Kind::new(format!("ELF {class} {order} {kind}, {name}"), mime))
}
