//! Addresses: `nfs://HOST[:PORT]/EXPORT[?port=N&mountport=N&maxentries=N]`.

/// The address of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NfsAddress {
    /// Host name or IP address.
    pub host: String,
    /// Path of the export, which starts with `/`.
    pub export: Vec<u8>,
    /// Port of the NFS server; without it, the port mapper is asked.
    pub port: Option<u16>,
    /// Port of the MOUNT server; without it, the port mapper is asked.
    pub mount_port: Option<u16>,
    /// The most entries of a directory; without it, 10 million.
    pub entries_max: Option<u64>,
}

/// The reason why a text is not the address of an export.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// There is no host or no export.
    #[error("the address of an export has the form nfs://HOST[:PORT]/EXPORT")]
    Form,
    /// A port is not a number from 1 to 65535.
    #[error("invalid port '{0}'")]
    Port(String),
    /// A number of entries is not a number of at least 1.
    #[error("invalid number of entries '{0}'")]
    Entries(String),
    /// An option is unknown.
    #[error("unknown option '{0}'")]
    Option(String),
}

fn port(text: &str) -> Result<u16, AddressError> {
    text.parse().ok().filter(|&port| port != 0).ok_or_else(|| AddressError::Port(text.into()))
}

fn entries(text: &str) -> Result<u64, AddressError> {
    text.parse().ok().filter(|&count| count != 0).ok_or_else(|| AddressError::Entries(text.into()))
}

impl NfsAddress {
    /// Parses an address without a path inside of the export.
    ///
    /// # Errors
    ///
    /// The text is not such an address.
    pub fn parse(text: &[u8]) -> Result<Self, AddressError> {
        let rest = text.strip_prefix(b"nfs://").ok_or(AddressError::Form)?;
        let slash = rest.iter().position(|&byte| byte == b'/').ok_or(AddressError::Form)?;
        let (host, path) = rest.split_at(slash);
        let host = str::from_utf8(host).map_err(|_| AddressError::Form)?;
        // An IPv6 address has brackets.
        let (host, number) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => host.split_once(':').map_or((host, None), |(host, number)| (host, Some(number))),
        };
        let question = path.iter().rposition(|&byte| byte == b'?').unwrap_or(path.len());
        let (export, options) = path.split_at(question);
        if host.is_empty() || export.len() > 1024 {
            return Err(AddressError::Form);
        }
        let mut found = Self {
            host: host.into(),
            export: export.to_vec(),
            port: number.map(port).transpose()?,
            mount_port: None,
            entries_max: None,
        };
        let options = options.strip_prefix(b"?").unwrap_or_default();
        for option in String::from_utf8_lossy(options).split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("port", number)) => found.port = Some(port(number)?),
                Some(("mountport", number)) => found.mount_port = Some(port(number)?),
                Some(("maxentries", count)) => found.entries_max = Some(entries(count)?),
                _ => return Err(AddressError::Option(option.into())),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(host: &str, export: &str, port: Option<u16>, mount_port: Option<u16>) -> NfsAddress {
        NfsAddress { host: host.into(), export: export.into(), port, mount_port, entries_max: None }
    }

    #[test]
    fn an_address_names_a_host_an_export_and_ports() {
        let parse = |text: &str| NfsAddress::parse(text.as_bytes());
        assert_eq!(parse("nfs://host/srv"), Ok(of("host", "/srv", None, None)));
        assert_eq!(parse("nfs://host:1/a/b?mountport=2"), Ok(of("host", "/a/b", Some(1), Some(2))));
        assert_eq!(parse("nfs://[::1]:9/?port=3&mountport=4"), Ok(of("::1", "/", Some(3), Some(4))));
        let limited = NfsAddress { entries_max: Some(5), ..of("host", "/srv", None, None) };
        assert_eq!(parse("nfs://host/srv?maxentries=5"), Ok(limited));
        assert_eq!(parse("nfs://host/srv?maxentries=0"), Err(AddressError::Entries("0".into())));
        assert_eq!(parse("nfs://host"), Err(AddressError::Form));
        assert_eq!(parse("nfs:///srv"), Err(AddressError::Form));
        assert_eq!(parse("nfs://host:0/srv"), Err(AddressError::Port("0".into())));
        assert_eq!(parse("nfs://host/srv?vers=4"), Err(AddressError::Option("vers=4".into())));
    }
}
