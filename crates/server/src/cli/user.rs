//! Users of the operating system.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{CliError, exit};

/// Name of the user that this process runs as.
pub(super) fn current() -> String {
    name_of(rustix::process::geteuid().as_raw())
}

/// Name of a user id, or the id itself where the machine has no name for it.
fn name_of(id: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    find(&users, id).unwrap_or_else(|| format!("uid {id}"))
}

/// Looks a user id up in the text of `/etc/passwd`.
fn find(users: &str, id: u32) -> Option<String> {
    let id = id.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1) == Some(id.as_str())).then(|| name.to_owned())
    })
}

/// Error for a file or directory of a node that this user cannot read.
pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    let mut message = format!("{} cannot be read: {error}", path.display());
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        let owner = path
            .ancestors()
            .find_map(|path| std::fs::metadata(path).ok())
            .map_or_else(|| "another user".to_owned(), |found| name_of(found.uid()));
        message.push_str(&format!(
            "\nIt belongs to {owner}, and this command runs as {}. Run it as {owner} (sudo -u {owner} sluice …), or set \
             SLUICE_ADMIN_TOKEN and --url.",
            current()
        ));
    }
    CliError::new(exit::UNAVAILABLE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_found_by_id() {
        let users = "root:x:0:0:root:/root:/bin/bash\nsluice:x:998:998::/var/lib/sluice:/usr/sbin/nologin\nbroken\n";
        assert_eq!(find(users, 0).as_deref(), Some("root"));
        assert_eq!(find(users, 998).as_deref(), Some("sluice"));
        assert_eq!(find(users, 99), None);
    }
}
