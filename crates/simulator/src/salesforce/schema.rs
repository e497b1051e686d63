//! Schema of an organisation: objects, fields and external ids.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schema {
    pub objects: BTreeMap<String, Object>,
}

/// Object type, such as Lead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// First three characters of every record id, such as `00Q` for leads.
    pub key_prefix: String,
    pub fields: BTreeMap<String, Field>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    pub kind: FieldKind,
    /// Must have a value on creation and afterwards.
    #[serde(default)]
    pub required: bool,
    /// Allowed in an upsert path.
    #[serde(default)]
    pub external_id: bool,
    /// Values are unique. Without it, several records may have the same external id.
    #[serde(default)]
    pub unique: bool,
    /// Only for unique fields; by default `ABC` and `abc` are equal.
    #[serde(default)]
    pub case_sensitive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldKind {
    /// Maximum length in characters.
    Text(usize),
    /// Email address of at most 80 characters.
    Email,
    Number,
    Checkbox,
    /// Id of a record of the named object.
    Reference(String),
}

impl Field {
    fn of(kind: FieldKind) -> Field {
        Field { kind, required: false, external_id: false, unique: false, case_sensitive: false }
    }

    /// Text of at most `length_max` characters.
    pub fn text(length_max: usize) -> Field {
        Field::of(FieldKind::Text(length_max))
    }

    pub fn email() -> Field {
        Field::of(FieldKind::Email)
    }

    pub fn number() -> Field {
        Field::of(FieldKind::Number)
    }

    pub(crate) fn checkbox() -> Field {
        Field::of(FieldKind::Checkbox)
    }

    /// Id of a record of that object.
    pub fn reference(object: &str) -> Field {
        Field::of(FieldKind::Reference(object.to_owned()))
    }

    /// External id of at most one record.
    pub(crate) fn unique_external_id() -> Field {
        Field { external_id: true, unique: true, ..Field::text(255) }
    }

    /// External id that several records may share.
    pub(crate) fn loose_external_id() -> Field {
        Field { external_id: true, ..Field::text(255) }
    }

    pub fn required(self) -> Field {
        Field { required: true, ..self }
    }

    pub(crate) fn is_indexed(&self) -> bool {
        self.external_id || self.unique
    }

    /// Form of a value used for comparison.
    pub(crate) fn index_key(&self, value: &str) -> String {
        let value = value.trim();
        if self.unique && !self.case_sensitive { value.to_lowercase() } else { value.to_owned() }
    }
}

impl Object {
    pub fn new(key_prefix: &str) -> Object {
        Object { key_prefix: key_prefix.to_owned(), fields: BTreeMap::new() }
    }

    /// Adds or replaces a field.
    pub fn with(mut self, name: &str, field: Field) -> Object {
        self.fields.insert(name.to_owned(), field);
        self
    }

    /// Field with its canonical name; `name` is case-insensitive.
    pub(crate) fn field(&self, name: &str) -> Option<(&str, &Field)> {
        let exact = self.fields.get_key_value(name);
        exact
            .or_else(|| self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)))
            .map(|(known, field)| (known.as_str(), field))
    }

    /// Reference field of a relationship name: `AccountId` for `Account`, `Parent__c` for `Parent__r`.
    pub(crate) fn relationship(&self, name: &str) -> Option<(&str, &str)> {
        let field = match name.strip_suffix("__r") {
            Some(custom) => format!("{custom}__c"),
            None => format!("{name}Id"),
        };
        match self.field(&field)? {
            (known, Field { kind: FieldKind::Reference(object), .. }) => Some((known, object)),
            _ => None,
        }
    }
}

impl Schema {
    /// Adds or replaces an object.
    pub fn with(mut self, name: &str, object: Object) -> Schema {
        self.objects.insert(name.to_owned(), object);
        self
    }

    pub(crate) fn object(&self, name: &str) -> Option<(&str, &Object)> {
        let exact = self.objects.get_key_value(name);
        exact
            .or_else(|| self.objects.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)))
            .map(|(known, object)| (known.as_str(), object))
    }
}

impl Default for Schema {
    /// Leads, contacts and accounts with common fields. `External_Lead_Id__c` and `External_Id__c` are unique external
    /// ids; `Legacy_Id__c` of leads is an external id that several records may share.
    fn default() -> Schema {
        let address = |object: Object, prefix: &str| {
            object
                .with(&format!("{prefix}Street"), Field::text(255))
                .with(&format!("{prefix}City"), Field::text(40))
                .with(&format!("{prefix}State"), Field::text(80))
                .with(&format!("{prefix}PostalCode"), Field::text(20))
                .with(&format!("{prefix}Country"), Field::text(80))
        };
        let person = |key_prefix: &str| {
            Object::new(key_prefix)
                .with("FirstName", Field::text(40))
                .with("LastName", Field::text(80).required())
                .with("Title", Field::text(128))
                .with("Email", Field::email())
                .with("Phone", Field::text(40))
                .with("MobilePhone", Field::text(40))
                .with("LeadSource", Field::text(255))
                .with("Description", Field::text(32_000))
                .with("HasOptedOutOfEmail", Field::checkbox())
                .with("External_Id__c", Field::unique_external_id())
        };
        let lead = address(person("00Q"), "")
            .with("Company", Field::text(255).required())
            .with("Status", Field::text(255))
            .with("Rating", Field::text(255))
            .with("Industry", Field::text(255))
            .with("Website", Field::text(255))
            .with("NumberOfEmployees", Field::number())
            .with("AnnualRevenue", Field::number())
            .with("Campaign__c", Field::text(255))
            .with("Consent__c", Field::checkbox())
            .with("Score__c", Field::number())
            .with("External_Lead_Id__c", Field::unique_external_id())
            .with("Legacy_Id__c", Field::loose_external_id());
        let contact = address(person("003"), "Mailing")
            .with("Department", Field::text(80))
            .with("AccountId", Field::reference("Account"));
        let account = address(Object::new("001"), "Billing")
            .with("Name", Field::text(255).required())
            .with("Phone", Field::text(40))
            .with("Website", Field::text(255))
            .with("Industry", Field::text(255))
            .with("Description", Field::text(32_000))
            .with("NumberOfEmployees", Field::number())
            .with("External_Id__c", Field::unique_external_id());
        Schema { objects: BTreeMap::new() }.with("Lead", lead).with("Contact", contact).with("Account", account)
    }
}
