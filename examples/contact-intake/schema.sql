CREATE TABLE contacts (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id  text NOT NULL,
  email      text NOT NULL,
  first_name text,
  last_name  text,
  UNIQUE (tenant_id, email)
);
