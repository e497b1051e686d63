SELECT digest FROM waiting_link
