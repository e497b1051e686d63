-- Sessions that were opened by an OpenID provider: its issuer, and its own id of the user. Such a session has a role of its own.
ALTER TABLE credential ADD COLUMN issuer TEXT;
ALTER TABLE credential ADD COLUMN subject TEXT;
