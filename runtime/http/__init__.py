"""The node's HTTP server, and who may use it. The routes are in admin/, metrics/ and console/."""
