-- The events of a contact. Numbers of contacts ascend, so that entries of new contacts are appended.
CREATE INDEX event_contact ON event (contact) WHERE contact IS NOT NULL;
