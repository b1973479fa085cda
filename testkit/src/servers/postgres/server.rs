//! The state of one server of Postgres, and its configuration.

use crate::ports::Port;

/// The settings of every server, unless set otherwise.
const SETTINGS: [&str; 7] = [
    "listen_addresses=127.0.0.1",
    "max_connections=200",
    "fsync=on",
    // The segments are files of the data folder, so that a killed server leaves nothing behind
    // elsewhere.
    "dynamic_shared_memory_type=mmap",
    // A standby that starts while the primary is under load still finds there the log that it
    // lacks.
    "wal_keep_size=32MB",
    // A standby reconnects soon after its primary is back.
    "wal_retrieve_retry_interval=100ms",
    "log_line_prefix=%m [%p] %b ",
];

pub(crate) struct Server {
    pub(crate) port: Port,
    /// Set once it has started for the first time.
    pub(crate) has_run: bool,
    /// Such as `max_connections=10`.
    pub(crate) settings: Vec<String>,
    /// The name of the server that this one is a standby of.
    pub(crate) primary: Option<String>,
    /// The names of the standbys that commits wait for, once they were changed.
    pub(crate) sync_names: Option<String>,
    /// Set while the process that receives from the primary is stopped.
    pub(crate) stalled: bool,
}

impl Server {
    pub(crate) fn new(port: Port) -> Self {
        Self { port, has_run: false, settings: Vec::new(), primary: None, sync_names: None, stalled: false }
    }

    /// The file of its configuration, with this name, a socket in this folder, and a primary on
    /// this port.
    pub(crate) fn configuration(&self, name: &str, folder: &str, primary: Option<u16>) -> String {
        // Of several lines for one name, the last one counts.
        let mut lines: Vec<String> = SETTINGS.iter().map(|setting| line(setting)).collect();
        lines.push(line(&format!("port={}", self.port)));
        lines.push(line(&format!("unix_socket_directories={folder}")));
        if let Some(port) = primary {
            let primary = format!("host={folder} port={port} user=postgres application_name={name}");
            lines.push(line(&format!("primary_conninfo={primary}")));
        }
        lines.extend(self.settings.iter().map(|setting| line(setting)));
        if primary.is_none() {
            lines.push(line("primary_conninfo="));
        }
        lines.extend(self.sync_names.iter().map(|names| line(&format!("synchronous_standby_names={names}"))));
        // This file has the settings for the start only.
        lines.push(format!("include_if_exists '{folder}/{name}.start.conf'\n"));
        lines.concat()
    }
}

/// A line of the configuration.
fn line(setting: &str) -> String {
    let (name, value) = setting.split_once('=').unwrap_or((setting, "on"));
    format!("{} = '{}'\n", name.trim(), value.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn values_are_quoted() {
        assert_eq!(line("archive_command=echo 'a\\b' = %p"), "archive_command = 'echo ''a\\\\b'' = %p'\n");
    }

    #[test]
    fn server_that_is_no_standby_any_more_looks_for_no_primary() {
        let mut server = Server::new(Port::reserve().unwrap());
        server.settings = vec!["primary_conninfo=port=1".to_owned()];
        let last = |configuration: String| {
            configuration.lines().rfind(|line| line.starts_with("primary_conninfo")).map(str::to_owned)
        };
        assert_eq!(
            last(server.configuration("a", "/tmp", Some(2))).as_deref(),
            Some("primary_conninfo = 'port=1'")
        );
        assert_eq!(last(server.configuration("a", "/tmp", None)).as_deref(), Some("primary_conninfo = ''"));
    }
}
