"""The node's HTTP server, and who may ask it. The routes are in admin/, metrics/ and console/."""
