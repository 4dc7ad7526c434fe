//! The types of partitions and their names.
//!
//! Sources: UEFI specification table 5.7; the Discoverable Partitions Specification of the UAPI group, 3; the
//! partition types of fdisk and sgdisk.

use std::fmt;

use super::{Guid, Scheme};

/// The type of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionType {
    /// The GUID in a GPT.
    Gpt(Guid),
    /// The number in an MBR.
    Mbr(u8),
}

impl PartitionType {
    /// Returns the name, if the type is known.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Self::Gpt(guid) => {
                GUIDS.iter().find(|(known, _)| Guid::from_u128(*known) == *guid).map(|(_, n)| *n)
            }
            Self::Mbr(number) => NUMBERS.iter().find(|(known, _)| known == number).map(|(_, name)| *name),
        }
    }

    /// Parses a type for a table of kind `scheme`: a name of [`PartitionType::known`], a GUID, or an MBR
    /// number in hexadecimal.
    pub fn parse(text: &str, scheme: Scheme) -> Option<Self> {
        let named = IDENTIFIERS.iter().find(|(name, ..)| *name == text);
        match (scheme, named) {
            (Scheme::Gpt, Some((_, guid, _))) => Some(Self::Gpt(Guid::from_u128(*guid))),
            (Scheme::Gpt, None) => Guid::parse(text).map(Self::Gpt),
            (Scheme::Mbr, Some((_, _, number))) => number.map(Self::Mbr),
            (Scheme::Mbr, None) => {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let number = u8::from_str_radix(digits, 16).ok().filter(|&number| number != 0);
                number.map(Self::Mbr).filter(|kind| !kind.is_container())
            }
        }
    }

    /// Returns the names of types for a table of kind `scheme`.
    pub fn known(scheme: Scheme) -> impl Iterator<Item = &'static str> {
        let names =
            IDENTIFIERS.iter().filter(move |(_, _, number)| scheme == Scheme::Gpt || number.is_some());
        names.map(|(name, ..)| *name)
    }

    /// Returns whether a partition of this type only contains other partitions.
    pub fn is_container(&self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }
}

/// Prints the name, or the number or GUID of an unknown type.
impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, Self::Gpt(guid)) => guid.fmt(f),
            (None, Self::Mbr(number)) => write!(f, "type {number:#04x}"),
        }
    }
}

/// Names of types as in systemd-repart(8) and `systemd-id128 show`, with the closest number of an MBR.
#[rustfmt::skip]
const IDENTIFIERS: &[(&str, u128, Option<u8>)] = &[
    ("esp", 0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b, Some(0xef)),
    ("xbootldr", 0xbc13c2ff_59e6_4262_a352_b275fd6f7172, Some(0xea)),
    ("bios-boot", 0x21686148_6449_6e6f_744e_656564454649, None),
    ("linux-generic", 0x0fc63daf_8483_4772_8e79_3d69d8477de4, Some(0x83)),
    ("basic-data", 0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7, Some(0x0c)),
    ("swap", 0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, Some(0x82)),
    ("home", 0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, None),
    ("srv", 0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8, None),
    ("var", 0x4d21b016_b534_45c2_a9fb_5c16e091fd2d, None),
    ("tmp", 0x7ec6f557_3bc5_4aca_b293_16ef5df639d1, None),
    ("user-home", 0x773f91ef_66d4_49b5_bd83_d683bf40ad16, None),
    ("raid", 0xa19d880f_05fc_4d3b_a006_743f0f84911e, Some(0xfd)),
    ("lvm", 0xe6d6d379_f507_44c2_a23c_238f2a3df928, Some(0x8e)),
    ("luks", 0xca7d7ccb_63ed_4c53_861c_1742536059cc, None),
    ("root-x86-64", 0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709, None),
    ("root-x86", 0x44479540_f297_41b2_9af7_d131d5f0458a, None),
    ("root-arm64", 0xb921b045_1df0_41c3_af44_4c6f280d3fae, None),
    ("root-arm", 0x69dad710_2ce4_4e3c_b16c_21a1d49abed3, None),
    ("root-riscv64", 0x72ec70a6_cf74_40e6_bd49_4bda08e8f224, None),
    ("root-riscv32", 0x60d5a7fe_8e7d_435c_b714_3dd8162144e1, None),
    ("root-loongarch64", 0x77055800_792c_4f94_b39a_98c91b762bb6, None),
    ("root-ppc64", 0x912ade1d_a839_4913_8964_a10eee08fbd2, None),
    ("root-ppc64-le", 0xc31c45e6_3f39_412e_80fb_4809c4980599, None),
    ("root-s390x", 0x5eead9a9_fe09_4a1e_a1d7_520d00531306, None),
    ("root-x86-64-verity", 0x2c7357ed_ebd2_46d9_aec1_23d437ec2bf5, None),
    ("root-x86-verity", 0xd13c5d3b_b5d1_422a_b29f_9454fdc89d76, None),
    ("root-arm64-verity", 0xdf3300ce_d69f_4c92_978c_9bfb0f38d820, None),
    ("root-arm-verity", 0x7386cdf2_203c_47a9_a498_f2ecce45a2d6, None),
    ("root-x86-64-verity-sig", 0x41092b05_9fc8_4523_994f_2def0408b176, None),
    ("root-arm64-verity-sig", 0x6db69de6_29f4_4758_a7a5_962190f00ce3, None),
    ("usr-x86-64", 0x8484680c_9521_48c6_9c11_b0720656f69e, None),
    ("usr-x86", 0x75250d76_8cc6_458e_bd66_bd47cc81a812, None),
    ("usr-arm64", 0xb0e01050_ee5f_4390_949a_9101b17104e9, None),
    ("usr-arm", 0x7d0359a3_02b3_4f0a_865c_654403e70625, None),
    ("usr-riscv64", 0xbeaec34b_8442_439b_a40b_984381ed097d, None),
    ("usr-x86-64-verity", 0x77ff5f63_e7b6_4633_acf4_1565b864c0e6, None),
    ("usr-arm64-verity", 0x6e11a4e7_fbca_4ded_b9e9_e1a512bb664e, None),
    ("usr-x86-64-verity-sig", 0xe7bb33fb_06cf_4e81_8273_e543b413e2e2, None),
];

#[rustfmt::skip]
const GUIDS: &[(u128, &str)] = &[
    (0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b, "EFI system"),
    (0x21686148_6449_6e6f_744e_656564454649, "BIOS boot"),
    (0x024dee41_33e7_11d3_9d69_0008c781f39f, "MBR partition scheme"),
    (0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7, "Microsoft basic data"),
    (0xe3c9e316_0b5c_4db8_817d_f92df00215ae, "Microsoft reserved"),
    (0xde94bba4_06d1_4d40_a16a_bfd50179d6ac, "Windows recovery"),
    (0x5808c8aa_7e8f_42e0_85d2_e1e90434cfb3, "Windows LDM metadata"),
    (0xaf9b60a0_1431_4f62_bc68_3311714a69ad, "Windows LDM data"),
    (0xe75caf8f_f680_4cee_afa3_b001e56efc2d, "Windows storage spaces"),
    (0x0fc63daf_8483_4772_8e79_3d69d8477de4, "Linux filesystem"),
    (0xa19d880f_05fc_4d3b_a006_743f0f84911e, "Linux RAID"),
    (0xe6d6d379_f507_44c2_a23c_238f2a3df928, "Linux LVM"),
    (0xca7d7ccb_63ed_4c53_861c_1742536059cc, "Linux LUKS"),
    (0x7ffec5c9_2d00_49b7_8941_3ea10a5586b7, "Linux dm-crypt"),
    (0x8da63339_0007_60c0_c436_083ac8230908, "Linux reserved"),
    (0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, "Linux swap"),
    (0xbc13c2ff_59e6_4262_a352_b275fd6f7172, "Linux extended boot"),
    (0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, "Linux home"),
    (0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8, "Linux srv"),
    (0x4d21b016_b534_45c2_a9fb_5c16e091fd2d, "Linux var"),
    (0x7ec6f557_3bc5_4aca_b293_16ef5df639d1, "Linux tmp"),
    (0x773f91ef_66d4_49b5_bd83_d683bf40ad16, "Linux user's home"),
    (0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709, "Linux root (x86-64)"),
    (0x44479540_f297_41b2_9af7_d131d5f0458a, "Linux root (x86)"),
    (0xb921b045_1df0_41c3_af44_4c6f280d3fae, "Linux root (ARM64)"),
    (0x69dad710_2ce4_4e3c_b16c_21a1d49abed3, "Linux root (ARM)"),
    (0x72ec70a6_cf74_40e6_bd49_4bda08e8f224, "Linux root (RISC-V 64)"),
    (0x60d5a7fe_8e7d_435c_b714_3dd8162144e1, "Linux root (RISC-V 32)"),
    (0x993d8d3d_f80e_4225_855a_9daf8ed7ea97, "Linux root (IA-64)"),
    (0x77055800_792c_4f94_b39a_98c91b762bb6, "Linux root (LoongArch 64)"),
    (0x1de3f1ef_fa98_47b5_8dcd_4a860a654d78, "Linux root (PowerPC)"),
    (0x912ade1d_a839_4913_8964_a10eee08fbd2, "Linux root (PowerPC 64)"),
    (0xc31c45e6_3f39_412e_80fb_4809c4980599, "Linux root (PowerPC 64 LE)"),
    (0x5eead9a9_fe09_4a1e_a1d7_520d00531306, "Linux root (S390x)"),
    (0x2c7357ed_ebd2_46d9_aec1_23d437ec2bf5, "Linux root verity (x86-64)"),
    (0xd13c5d3b_b5d1_422a_b29f_9454fdc89d76, "Linux root verity (x86)"),
    (0xdf3300ce_d69f_4c92_978c_9bfb0f38d820, "Linux root verity (ARM64)"),
    (0x7386cdf2_203c_47a9_a498_f2ecce45a2d6, "Linux root verity (ARM)"),
    (0x41092b05_9fc8_4523_994f_2def0408b176, "Linux root verity signature (x86-64)"),
    (0x6db69de6_29f4_4758_a7a5_962190f00ce3, "Linux root verity signature (ARM64)"),
    (0x8484680c_9521_48c6_9c11_b0720656f69e, "Linux usr (x86-64)"),
    (0x75250d76_8cc6_458e_bd66_bd47cc81a812, "Linux usr (x86)"),
    (0xb0e01050_ee5f_4390_949a_9101b17104e9, "Linux usr (ARM64)"),
    (0x7d0359a3_02b3_4f0a_865c_654403e70625, "Linux usr (ARM)"),
    (0xbeaec34b_8442_439b_a40b_984381ed097d, "Linux usr (RISC-V 64)"),
    (0x77ff5f63_e7b6_4633_acf4_1565b864c0e6, "Linux usr verity (x86-64)"),
    (0x6e11a4e7_fbca_4ded_b9e9_e1a512bb664e, "Linux usr verity (ARM64)"),
    (0xe7bb33fb_06cf_4e81_8273_e543b413e2e2, "Linux usr verity signature (x86-64)"),
    (0xfe3a2a5d_4f32_41a7_b725_accc3285a309, "ChromeOS kernel"),
    (0x3cb8e202_3b7e_47dd_8a3c_7ff2a13cfcec, "ChromeOS root"),
    (0x2e0a753d_9e48_43b0_8337_b15192cb1b5e, "ChromeOS reserved"),
    (0x83bd6b9d_7f41_11dc_be0b_001560b84f0f, "FreeBSD boot"),
    (0x516e7cb4_6ecf_11d6_8ff8_00022d09712b, "FreeBSD disklabel"),
    (0x516e7cb5_6ecf_11d6_8ff8_00022d09712b, "FreeBSD swap"),
    (0x516e7cb6_6ecf_11d6_8ff8_00022d09712b, "FreeBSD UFS"),
    (0x516e7cba_6ecf_11d6_8ff8_00022d09712b, "FreeBSD ZFS"),
    (0x824cc7a0_36a8_11e3_890a_952519ad3f61, "OpenBSD data"),
    (0x49f48d5a_b10e_11dc_b99b_0019d1879648, "NetBSD FFS"),
    (0x49f48d32_b10e_11dc_b99b_0019d1879648, "NetBSD swap"),
    (0x48465300_0000_11aa_aa11_00306543ecac, "Apple HFS+"),
    (0x7c3457ef_0000_11aa_aa11_00306543ecac, "Apple APFS"),
    (0x426f6f74_0000_11aa_aa11_00306543ecac, "Apple boot"),
    (0x6a898cc3_1dd2_11b2_99a6_080020736631, "Solaris usr or ZFS"),
];

#[rustfmt::skip]
const NUMBERS: &[(u8, &str)] = &[
    (0x01, "FAT12"),
    (0x04, "FAT16 (small)"),
    (0x05, "extended"),
    (0x06, "FAT16"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32 (LBA)"),
    (0x0e, "FAT16 (LBA)"),
    (0x0f, "extended (LBA)"),
    (0x11, "hidden FAT12"),
    (0x17, "hidden NTFS or ISO 9660"),
    (0x1b, "hidden FAT32"),
    (0x1c, "hidden FAT32 (LBA)"),
    (0x27, "Windows recovery"),
    (0x39, "Plan 9"),
    (0x41, "PReP boot"),
    (0x63, "System V"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x84, "hibernation"),
    (0x85, "Linux extended"),
    (0x8e, "Linux LVM"),
    (0x9f, "BSD/OS"),
    (0xa5, "FreeBSD"),
    (0xa6, "OpenBSD"),
    (0xa8, "Darwin UFS"),
    (0xa9, "NetBSD"),
    (0xab, "Darwin boot"),
    (0xaf, "HFS or HFS+"),
    (0xbe, "Solaris boot"),
    (0xbf, "Solaris"),
    (0xda, "data without a file system"),
    (0xea, "Linux extended boot"),
    (0xeb, "BeOS"),
    (0xee, "GPT"),
    (0xef, "EFI system"),
    (0xfb, "VMware VMFS"),
    (0xfd, "Linux RAID"),
];
